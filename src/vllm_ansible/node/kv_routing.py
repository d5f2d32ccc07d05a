"""Ask one beginning repeatedly and read whose cache was hit; standard library only."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .engine.completion import Unanswered
from .engine.http_answer import open_request
from .engine.metrics import get, total

WORDS = ("river", "stone", "cloud", "paper", "winter", "garden", "silver", "engine", "coffee")
# Whole blocks of the shared beginning, more than are asked to be hit.
BLOCKS = 4
REPEATS = 6
POLL_SECONDS = 0.2
HITS = "vllm:prefix_cache_hits_total"
APPLIED = "dynamo_component_kv_cache_events_applied"
BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"


def applied(text: str) -> float:
    """Return how many blocks' events Dynamo has taken into its index."""
    return total(text, APPLIED, 'event_type="stored"', 'status="ok"')


def workers(health: Mapping[str, Any], sidecars: Sequence[str] = ()) -> int:
    """Return how many engines Dynamo sends requests to, or how many of these sidecars.

    By the address of their sidecars: one that was killed is listed twice until its lease ends, and
    one whose host was replaced as long, at an address that nobody has any more.
    """
    instances = health.get("instances") or ()
    served = [one.get("transport") or {} for one in instances if one.get("endpoint") == "generate"]
    found = {str(one.get("tcp", "")).partition("/")[0] for one in served}
    return len(found & set(sidecars) if sidecars else found)


def ask(url: str, key: str, model: str, text: str, timeout: float) -> int:
    """Return how many tokens a prompt had, answered by one token."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 1,
    }
    request = urllib.request.Request(  # noqa: S310 - http by plan
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with open_request(request, timeout) as response:
            return int(json.load(response)["usage"]["prompt_tokens"])
    except urllib.error.HTTPError as error:
        raise Unanswered(
            f"HTTP {error.code}: {error.read(500).decode(errors='replace')}"
        ) from error
    except (OSError, http.client.HTTPException, LookupError, ValueError, TypeError) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error


def beginning(words: int, seed: str = "") -> str:
    """Return a text that nobody has asked before, the same one for each call with a seed."""
    source = random.Random(seed) if seed else random.SystemRandom()  # noqa: S311 - no secret
    return " ".join(source.choices(WORDS, k=words))


def wait_for_workers(front: str, count: int, seconds: float, sidecars: Sequence[str] = ()) -> int:
    """Return how many engines Dynamo knows, as soon as it knows so many."""
    end = time.monotonic() + seconds
    while True:
        try:
            known = workers(json.loads(get(f"{front}/health", 10) or "{}"), sidecars)
        except ValueError:
            known = 0
        if known >= count or time.monotonic() > end:
            return known
        time.sleep(POLL_SECONDS)


def state(front: str, count: int, wait: float, sidecars: Sequence[str] = ()) -> dict[str, Any]:
    """Return what Dynamo says of itself, without a question to any engine.

    count: how many engines it is to know, for which it is given so many seconds. sidecars: where
    these take requests, as Dynamo lists them; without them whatever it lists counts.
    """
    return {
        "workers": wait_for_workers(front, count, wait, sidecars),
        "events": int(applied(get(f"{front}/metrics", 10))),
    }


def hits(servers: Sequence[str], timeout: float) -> list[int]:
    """Return the tokens that each engine has found in its cache so far."""
    return [int(total(get(f"{one}/metrics", timeout), HITS)) for one in servers]


class Routing:
    """One prompt that is asked repeatedly by way of Dynamo, in one call or in several.

    url: the router's, by which clients ask. front: Dynamo's own. seed: makes the prompt, so that
    several calls ask the same. Raises Unanswered with the words of who refused a question.
    """

    def __init__(
        self, url: str, front: str, key: str, model: str, timeout: float, seed: str = ""
    ) -> None:
        self._url, self._front, self._key, self._model = url, front, key, model
        self._timeout = timeout
        text = get(f"{front}/metrics", timeout)
        self.block = int(total(text, BLOCK_SIZE, f'model="{model}"'))
        self._text = beginning(BLOCKS * max(self.block, 1), seed)

    def repeat(self, number: int) -> int:
        """Ask the same beginning with another end; return the tokens of the prompt."""
        return ask(self._url, self._key, self._model, f"{self._text} {number}", self._timeout)

    def first(self, wait: float) -> dict[str, Any]:
        """Ask it for the first time, and return how many events of it Dynamo has applied."""
        before = self._applied()
        found: dict[str, Any] = {"block_size": self.block, "prompt_tokens": self.repeat(0)}
        end = time.monotonic() + wait
        # An event travels behind its answer.
        while (grown := self._applied() - before) <= 0 and time.monotonic() <= end:
            time.sleep(POLL_SECONDS)
        return {**found, "events": int(grown)}

    def _applied(self) -> float:
        return applied(get(f"{self._front}/metrics", self._timeout))


def look(
    url: str,
    front: str,
    servers: Sequence[str],
    key: str,
    model: str,
    wait: float,
    timeout: float,
    sidecars: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what repeats of one prompt found: workers, block size, events, hits by server.

    servers: of the engines, each with counters of its own.
    """
    found: dict[str, Any] = {"workers": wait_for_workers(front, len(servers), wait, sidecars)}
    routing = Routing(url, front, key, model, timeout)
    found |= {**routing.first(wait), "repeats": []}
    for number in range(1, REPEATS + 1):
        before = hits(servers, timeout)
        routing.repeat(number)
        after = hits(servers, timeout)
        found["repeats"].append([b - a for a, b in zip(before, after)])  # noqa: B905 - Python 3.9
    return found
