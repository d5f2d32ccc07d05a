"""Requests to a provider's HTTP API: in their turn, with the key, retried where that is harmless.

A request that was refused for coming too often is sent again after the wait that the answer names.
One that failed on the way is sent again unless it starts machines: whether a launch whose answer
was lost has been carried out, only the provider's list tells (`ReplyLost`).
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .clock import Clock
from .fleet import ReplyLost

TIMEOUT_SECONDS = 30.0
# Waits after a failure on the way, in seconds; then it is reported.
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
TOO_MANY = 429
# The longest that answers may ask to wait in all.
TOO_MANY_SECONDS = 300.0
# Where an answer that asks for patience does not say how much, and the longest it may ask for.
PATIENCE_SECONDS, LONGEST_SECONDS = 15.0, 120.0


class Refused(Exception):
    """The provider refused a request, in its own words."""

    status: int

    @property
    def passes(self) -> bool:
        """Tell whether the same request may be answered later."""
        return self.status >= 500


class Unreachable(Exception):
    """The API gave no answer that can be understood."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back over HTTP."""

    status: int
    body: bytes
    retry_after: str | None = None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow nobody: urllib would take the key along to any other host."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect an answer like any other."""


_OPENER = urllib.request.build_opener(_NoRedirects)


def send(request: urllib.request.Request) -> Answer:
    """Send one request; a refusal is an answer as well."""
    try:
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as reply:
            return Answer(reply.status, reply.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.read(), refusal.headers.get("Retry-After"))


def is_safe(endpoint: str) -> bool:
    """Tell whether a key may be sent there: encrypted, or to this machine."""
    return endpoint.startswith(("https://", "http://127.0.0.1:", "http://[::1]:"))


class Api(ABC):
    """Requests in their turn, each answered with its data or with one kind of error.

    `launching` is the kind of turn that a request takes which starts machines.
    """

    launching = "launch"

    def __init__(
        self,
        key: str,
        clock: Clock,
        endpoint: str,
        sleep: Callable[[float], None] = time.sleep,
        transport: Callable[[urllib.request.Request], Answer] = send,
    ) -> None:
        if not is_safe(endpoint):
            raise ValueError(f"the key is sent over https only, not to {endpoint}")
        self._key, self._clock, self._endpoint = key, clock, endpoint.rstrip("/")
        self._sleep, self._transport = sleep, transport

    @abstractmethod
    def _data(self, answer: Answer) -> Any:
        """Return the data of an answer; raise Refused, or Unreachable for no answer of the API."""

    @abstractmethod
    def _crowded(self, answer: Answer, held: float) -> Refused:
        """Return the refusal of a key that something else uses all the time."""

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kinds: tuple[str, ...] = ("request",),
    ) -> Any:
        waits = iter(WAITS)
        held = 0.0
        while True:
            self._clock.turn(*kinds)
            try:
                answer = self._transport(self._request(method, path, body))
                if answer.status == TOO_MANY:
                    if held >= TOO_MANY_SECONDS:
                        raise self._crowded(answer, held)
                    hold = _seconds(answer.retry_after)
                    self._clock.hold(kinds[-1], hold)
                    held += hold
                    continue
                return self._data(answer)
            except (Refused, Unreachable, OSError, http.client.HTTPException) as error:
                if isinstance(error, Refused) and not error.passes:
                    raise
                if self.launching in kinds and not _never_sent(error):
                    raise ReplyLost(f"{self._endpoint}{path}: {_words(error)}") from error
                wait = next(waits, None)
                if wait is None:
                    message = f"{method} {self._endpoint}{path}: {_words(error)}"
                    raise Unreachable(message) from error
                self._sleep(wait)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        url = f"{self._endpoint}{path}"
        return urllib.request.Request(url, content, headers, method=method)  # noqa: S310 https, or this machine


def strange(answer: Answer) -> Unreachable:
    """Return the error of an answer that is none of the API's."""
    text = answer.body[:200].decode(errors="replace")
    return Unreachable(f"an answer that is not the API's: {answer.status} {text!r}")


def _seconds(retry_after: str | None) -> float:
    """Return the wait that an answer asks for."""
    try:
        return min(max(float(retry_after or PATIENCE_SECONDS), 1.0), LONGEST_SECONDS)
    except ValueError:
        return PATIENCE_SECONDS


def _never_sent(error: Exception) -> bool:
    """Tell whether the connection failed before anything could have been asked."""
    reason = getattr(error, "reason", None)
    return isinstance(reason, (ConnectionRefusedError, socket.gaierror))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
