"""Where a run spent its time, from its own record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Events = Sequence[dict[str, Any]]


def read(runs: Path) -> list[dict[str, Any]]:
    """Return the events of the latest run."""
    lines = (runs / "latest/events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def changed(events: Events) -> int:
    """Return how many tasks changed something."""
    return int(_end(events)["changed"])


def failure(events: Events) -> str:
    """Return why a run failed."""
    said = [event["msg"] for event in events if event["event"] == "failure"]
    return said[0] if said else "no failure was recorded"


def stages(events: Events) -> dict[str, float]:
    """Return the seconds of each stage, in order."""
    ends = (event for event in events if event["event"] == "stage_end")
    return {event["stage"]: event["seconds"] for event in ends}


def kinds(events: Events, cheap_seconds: float = 0.15) -> dict[str, dict[str, float]]:
    """Return tasks and seconds of what was skipped, what stayed on the controller, what did not.

    A task over several hosts counts once, with its longest host. A task that takes longer than
    cheap_seconds on a host that is this machine has left the controller: it ran a module.
    """
    longest: dict[tuple[str, str, int], tuple[float, str]] = {}
    turns: dict[tuple[str, str, str], int] = {}
    for event in events:
        if event["event"] != "task":
            continue
        place = (event["stage"], event["task"], event["host"])
        turns[place] = turns.get(place, 0) + 1
        key = (event["stage"], event["task"], turns[place])
        longest[key] = max(longest.get(key, (0.0, "")), (event["seconds"], event["status"]))
    found = {name: {"tasks": 0, "seconds": 0.0} for name in ("skipped", "controller", "module")}
    for seconds, status in longest.values():
        kind = "module" if seconds > cheap_seconds else "controller"
        one = found["skipped" if status == "skipped" else kind]
        one["tasks"] += 1
        one["seconds"] += seconds
    return found


def slowest(events: Events, count: int = 12) -> list[tuple[float, str, str]]:
    """Return the tasks that took longest: seconds, stage, task."""
    tasks = [event for event in events if event["event"] == "task"]
    tasks.sort(key=lambda event: -event["seconds"])
    return [(event["seconds"], event["stage"], event["task"]) for event in tasks[:count]]


def _end(events: Events) -> dict[str, Any]:
    return next(event for event in reversed(events) if event["event"] == "run_end")
