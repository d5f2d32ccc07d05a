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


def workers(health: Mapping[str, Any]) -> int:
    """Return how many engines Dynamo sends requests to.

    By the address of their sidecars: one that was killed is listed twice until its lease ends.
    """
    instances = health.get("instances") or ()
    served = [one.get("transport") or {} for one in instances if one.get("endpoint") == "generate"]
    return len({str(one.get("tcp", "")).partition("/")[0] for one in served})


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


def beginning(words: int) -> str:
    """Return a text that nobody has asked before."""
    return " ".join(random.SystemRandom().choices(WORDS, k=words))


def wait_for_workers(front: str, count: int, seconds: float) -> int:
    """Return how many engines Dynamo knows, as soon as it knows so many."""
    end = time.monotonic() + seconds
    while True:
        try:
            known = workers(json.loads(get(f"{front}/health", 10) or "{}"))
        except ValueError:
            known = 0
        if known >= count or time.monotonic() > end:
            return known
        time.sleep(POLL_SECONDS)


def state(front: str, count: int, wait: float) -> dict[str, Any]:
    """Return what Dynamo says of itself, without a question to any engine.

    count: how many engines it is to know, for which it is given so many seconds.
    """
    return {
        "workers": wait_for_workers(front, count, wait),
        "events": int(applied(get(f"{front}/metrics", 10))),
    }


def look(
    url: str, front: str, servers: Sequence[str], key: str, model: str, wait: float, timeout: float
) -> dict[str, Any]:
    """Return what repeats of one prompt found: workers, block size, events, hits by server.

    url: the router's, by which clients ask. front: Dynamo's own. servers: of the engines, each
    with counters of its own. Raises Unanswered with the words of who refused a question.
    """
    found: dict[str, Any] = {"workers": wait_for_workers(front, len(servers), wait)}
    block = int(total(get(f"{front}/metrics", timeout), BLOCK_SIZE, f'model="{model}"'))
    found |= {"block_size": block, "repeats": []}
    text = beginning(BLOCKS * max(block, 1))
    before = applied(get(f"{front}/metrics", timeout))
    found["prompt_tokens"] = ask(url, key, model, f"{text} 0", timeout)
    end = time.monotonic() + wait
    # An event travels behind its answer.
    while (grown := applied(get(f"{front}/metrics", timeout)) - before) <= 0:
        if time.monotonic() > end:
            break
        time.sleep(POLL_SECONDS)
    found["events"] = int(grown)
    for number in range(1, REPEATS + 1):
        hits = [total(get(f"{one}/metrics", timeout), HITS) for one in servers]
        ask(url, key, model, f"{text} {number}", timeout)
        after = [total(get(f"{one}/metrics", timeout), HITS) for one in servers]
        found["repeats"].append([int(b - a) for a, b in zip(hits, after)])  # noqa: B905 - Python 3.9
    return found
