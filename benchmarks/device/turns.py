#!/usr/bin/env python3
"""Hold conversations of many turns with data ranks; print what their caches held of them.

turns.py URL MODEL KEY_FILE RANK_PORT,RANK_PORT [--users 64] [--turns 6] [--first 600] [--more 100]

Each user sends all that was said before with each turn. Texts are new in each call. Cached tokens
are by the ranks' own counters. Without --pause a user asks again at once, and by least connections
goes back to the rank that has just answered: that one has a request fewer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
WORDS = ("river", "stone", "light", "paper", "green", "house", "winter", "table", "letter")
ATTEMPT_SECONDS = 300


def counted(ports: Sequence[str], key: str) -> list[tuple[float, float]]:
    """Return of each rank the tokens that were cached and all that were looked for."""
    found = []
    for port in ports:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - ours
            text = answer.read().decode()
        hits, queries = (
            sum(map(float, re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)))
            for name in (HITS, QUERIES)
        )
        found.append((hits, queries))
    return found


def ask(url: str, key: str, body: dict[str, Any], name: str) -> tuple[float, str]:
    """Return the seconds to the first token of a streamed answer, and its text."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    if name:
        headers["X-Conversation"] = name
    request = urllib.request.Request(  # noqa: S310 - ours
        f"{url}/chat/completions", json.dumps({**body, "stream": True}).encode(), headers
    )
    began, first, text = time.monotonic(), 0.0, ""
    with urllib.request.urlopen(request, timeout=ATTEMPT_SECONDS) as answer:  # noqa: S310 - ours
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


def converse(given: argparse.Namespace) -> dict[str, Any]:
    """Hold all conversations at once; return seconds to first tokens and what was cached."""
    key = given.key_file.read_text(encoding="utf-8").strip()
    ports = given.ranks.split(",")
    seed = random.SystemRandom().randrange(1 << 60)
    first: list[float] = []
    later: list[float] = []
    failed: list[str] = []

    def words(place: random.Random, count: int) -> str:
        return " ".join(f"{place.choice(WORDS)}{place.randrange(1000)}" for _ in range(count))

    def one(user: int) -> None:
        place = random.Random(seed + user)  # noqa: S311 - texts, no secrets
        said: list[dict[str, str]] = []
        for turn in range(given.turns):
            if turn:
                time.sleep(given.pause * place.uniform(0.5, 1.5))
            said.append(
                {"role": "user", "content": words(place, given.more if turn else given.first)}
            )
            body = {"model": given.model, "messages": said, "max_tokens": given.tokens}
            name = f"{seed + user:x}" if given.named else ""
            body |= {"temperature": 0, "ignore_eos": True}
            try:
                seconds, text = ask(given.url, key, body, name)
            except (OSError, ValueError) as error:
                failed.append(f"{type(error).__name__}: {error}")
                return
            (later if turn else first).append(seconds)
            said.append({"role": "assistant", "content": text})

    before, began = counted(ports, key), time.monotonic()
    threads = [threading.Thread(target=one, args=(user,)) for user in range(given.users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    ranks = [
        {"hits": then[0] - now[0], "queries": then[1] - now[1]}
        for now, then in zip(before, counted(ports, key), strict=True)
    ]
    ordered = sorted(later)
    return {
        **{
            name: getattr(given, name)
            for name in ("users", "turns", "first", "more", "tokens", "pause")
        },
        "seconds": round(seconds, 2),
        "answers": len(first) + len(later),
        "failed": failed[:3],
        "failures": len(failed),
        "ranks": ranks,
        "cached_share": round(
            sum(one["hits"] for one in ranks) / max(1, sum(one["queries"] for one in ranks)), 4
        ),
        "first_turn_ttft_ms_median": round(1e3 * median(first), 1) if first else None,
        "later_ttft_ms_median": round(1e3 * median(ordered), 1) if later else None,
        "later_ttft_ms_p90": round(1e3 * ordered[int(0.9 * len(later))], 1) if later else None,
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="with /v1")
    parser.add_argument("model")
    parser.add_argument("key_file", type=Path)
    parser.add_argument("ranks", help="ports of the ranks' own metrics, by comma")
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--first", type=int, default=600, help="words of the first turn")
    parser.add_argument("--more", type=int, default=100, help="words of each later turn")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="mean seconds from an answer to the next turn"
    )
    parser.add_argument("--named", action="store_true", help="say X-Conversation, as the door does")
    print(json.dumps(converse(parser.parse_args())))


if __name__ == "__main__":
    main()
