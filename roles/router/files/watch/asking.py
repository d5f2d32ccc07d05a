"""One short completion of a rank, and its own count of what it has computed."""

from __future__ import annotations

import http.client
import json
import re
import socket
from contextlib import suppress

# What grows with every step of an engine of vLLM that computes anything.
PROGRESS = re.compile(
    rb"^vllm:(?:iteration_tokens_total_count|generation_tokens_total|prompt_tokens_total)"
    rb"(?:\{[^}]*\})? ([0-9.eE+]+)",
    re.MULTILINE,
)


class Silence(Exception):
    """A rank did not answer as it should, with why."""


class Question:
    """One request of ours to a rank; another thread may give it up while it waits."""

    def __init__(self, address: str, port: int, timeout: float) -> None:
        self._connection = http.client.HTTPConnection(address, port, timeout=timeout)

    def complete(self, model: str, key: str, tokens: int, purpose: str, number: int) -> int:
        """Return the number of tokens of a greedy completion; raise Silence without one.

        purpose: by which logs, metrics and bills tell it from a client's request.
        """
        body = {
            "model": model,
            "prompt": "hi",
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "user": purpose,
        }
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {key}",
            "X-Request-Id": f"{purpose}-{number}",
        }
        status, text = self._ask("POST", "/v1/completions", json.dumps(body).encode(), headers)
        if status != 200:
            raise Silence(f"HTTP {status}: {text[:200].decode(errors='replace')}")
        try:
            return int(json.loads(text)["usage"]["completion_tokens"])
        except (LookupError, TypeError, ValueError) as error:
            raise Silence(f"an answer without usage: {error}") from error

    def progress(self) -> float | None:
        """Return a figure that grows while the rank computes, None where it keeps no such count."""
        status, text = self._ask("GET", "/metrics", None, {})
        if status != 200:
            return None
        found = [float(one) for one in PROGRESS.findall(text)]
        return sum(found) if found else None

    def give_up(self) -> None:
        """Let the thread that waits for the answer wait no more."""
        waiting = self._connection.sock
        if waiting is not None:
            with suppress(OSError):  # it has just ended by itself
                waiting.shutdown(socket.SHUT_RDWR)

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Silence(f"{type(error).__name__}: {error}") from error
        finally:
            self._connection.close()
