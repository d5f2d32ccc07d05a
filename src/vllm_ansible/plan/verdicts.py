"""What the waits for all servers found, engine by engine: one is ready when all its ranks are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Wait = Mapping[str, Any]
# Of one rank, what the evidence keeps.
TOLD = ("endpoint", "question", "answer", "reasoning", "seconds")


def gathered(results: Iterable[Wait]) -> dict[str, Any]:
    """Return `ready` and `unready`, a verdict by engine, and the names of the `silent` and the
    `wrong` ones.

    results: of looped waits; `item` is an engine, or a server with its `engine`, `rank` and the
    number `of` ranks. Those that did not wait are no results.
    """
    found: dict[str, list[Wait]] = {}
    for one in results:
        if "ready" in one:
            item = one["item"]
            found.setdefault(str(item.get("engine") or item["name"]), []).append(one)
    ready, unready = {}, {}
    for engine, waits in found.items():
        missing = [wait for wait in waits if not wait["ready"]]
        if missing:
            unready[engine] = _unready(missing)
        else:
            ready[engine] = _ready(waits)
    # They serve, and must not.
    wrong = [engine for engine, waits in found.items() if any(one.get("wrong") for one in waits)]
    silent = [engine for engine, waits in found.items() if any(one.get("silent") for one in waits)]
    return {"ready": ready, "unready": unready, "silent": silent, "wrong": wrong}


def ranks_asked(engine: Mapping[str, Any], verdict: Wait) -> list[str]:
    """Return the names of the ranks of a planned engine that nobody asked."""
    data = int((engine.get("layout") or {}).get("data", 1))
    if data == 1:
        return []
    asked = {one["rank"] for one in verdict.get("ranks", ())}
    return [f"{engine['name']} rank {rank}" for rank in range(data) if rank not in asked]


def _ready(waits: list[Wait]) -> dict[str, Any]:
    """Return the verdict of the first rank, with what each of several answered."""
    ordered = sorted(waits, key=lambda wait: int(wait["item"].get("rank", 0)))
    first = dict(ordered[0])
    if int(first["item"].get("of", 1)) == 1:
        return first
    ranks = [
        {
            "rank": wait["item"]["rank"],
            "host": wait["item"]["host"],
            "process": wait["item"]["name"],
            **{name: wait[name] for name in TOLD if name in wait},
        }
        for wait in ordered
    ]
    # They wait for each other: the start of the engine is that of the rank that took longest.
    starts: list[Mapping[str, float]] = [wait.get("start") or {} for wait in ordered]
    longest = max(starts, key=lambda one: sum(one.values()))
    return {**first, "ranks": ranks, **({"start": longest} if longest else {})}


def _unready(missing: list[Wait]) -> dict[str, Any]:
    """Return what was found of the rank that tells most: one that ended before one that waits."""
    ordered = sorted(missing, key=lambda wait: bool(wait.get("silent")))
    first = dict(ordered[0])
    others = [str(wait["item"]["name"]) for wait in ordered[1:]]
    if others:
        first["found"] = f"{first['found']}; no answer from {', '.join(others)} either"
    return first
