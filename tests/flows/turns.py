"""Conversations of many turns with an engine of data ranks, and how much of them was cached."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from vllm_ansible.node.engine.metrics import total
from vllm_ansible.node.kv_routing import HITS, WORDS

from .clone import MINUTE
from .dynamo import chat, post

QUERIES = "vllm:prefix_cache_queries_total"
FIRST, MORE, TOKENS = 300, 40, 12


@dataclass
class Turned:
    """Of conversations: seconds to first tokens of the first turn and later ones, cached tokens."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    hits: float = 0.0
    queries: float = 0.0

    def line(self, front: str) -> str:
        ordered = sorted(self.later)
        return (
            f"{front}: {self.hits / self.queries:.0%} of {self.queries:.0f} prompt tokens cached; "
            f"TTFT of turn 1 {median(self.first) * 1e3:.0f} ms, of later turns p50 "
            f"{median(ordered) * 1e3:.0f} ms, p90 {ordered[int(0.9 * len(ordered))] * 1e3:.0f} ms; "
            f"{len(self.first) + len(self.later)} answers, {len(self.failed)} failed"
        )


def conversations(
    url: str, key: str, model: str, ranks: Sequence[int], users: int = 5, turns: int = 6
) -> Turned:
    """Hold a conversation with each of some users at once; texts are new in each call.

    ranks: the ports of the ranks' own metrics.
    """
    found, seed = Turned(), random.SystemRandom().randrange(1 << 60)
    before = _counted(ranks, key)

    def words(place: random.Random, count: int) -> str:
        return " ".join(f"{place.choice(WORDS)}{place.randrange(1000)}" for _ in range(count))

    def one(user: int) -> None:
        place = random.Random(seed + user)  # noqa: S311 - texts, no secrets
        said: list[dict[str, str]] = []
        for turn in range(turns):
            said.append({"role": "user", "content": words(place, MORE if turn else FIRST)})
            try:
                seconds, text = _asked(url, key, {**chat(model, "", TOKENS), "messages": said})
            except (OSError, ValueError) as error:
                found.failed.append(f"{type(error).__name__}: {error}")
                return
            (found.later if turn else found.first).append(seconds)
            said.append({"role": "assistant", "content": text})

    threads = [threading.Thread(target=one, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20 * MINUTE)
    after = _counted(ranks, key)
    found.hits, found.queries = after[0] - before[0], after[1] - before[1]
    return found


def _asked(url: str, key: str, body: dict[str, Any]) -> tuple[float, str]:
    """Return the seconds to the first token of a streamed answer, and its text."""
    began, first, text = time.monotonic(), 0.0, ""
    with post(url, key, {**body, "stream": True, "ignore_eos": True}, 5 * MINUTE) as answer:
        for line in answer:
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            for choice in json.loads(line[5:]).get("choices", ()):
                if said := choice["delta"].get("content"):
                    first = first or time.monotonic() - began
                    text += said
    if not first:
        raise ValueError("an answer without text")
    return first, text


def _counted(ranks: Sequence[int], key: str) -> tuple[float, float]:
    """Return the tokens that were cached and all that were looked for, of all ranks."""
    hits = queries = 0.0
    for port in ranks:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request, timeout=MINUTE) as answer:  # noqa: S310 - ours
            text = answer.read().decode()
        hits, queries = hits + total(text, HITS), queries + total(text, QUERIES)
    return hits, queries
