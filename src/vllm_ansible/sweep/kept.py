"""What is kept of a sweep: the points that were measured or failed, and the plan before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .points import AXES, LENGTHS, Point

VERSION = 1
SHOWN_WORDS = 600


def begun(
    kept: Mapping[str, Any], engine: str, mark: str, plan: Mapping[str, Any], again: bool
) -> dict[str, Any]:
    """Return the document that a sweep goes on with.

    kept is what the last one left, if anything; mark is the fingerprint of what is measured now.
    The plan before a sweep that never came to its end is still the one to go back to.
    """
    known = kept if kept.get("version") == VERSION else {}
    holds = known.get("fingerprint") == mark and not again
    return {
        "version": VERSION,
        "engine": engine,
        "fingerprint": mark,
        "before": known.get("before") or dict(plan),
        "points": list(known["points"]) if holds else [],
    }


def before_of(kept: Mapping[str, Any], plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plan before the sweep: the present one, unless a sweep was cut short."""
    before = kept.get("before") if kept.get("version") == VERSION else None
    return before or plan


def left(document: Mapping[str, Any], wanted: Sequence[Point], failed_again: bool) -> list[Point]:
    """Return the points that are still to be measured, in order."""
    done = {_place(one) for one in document["points"] if one["ok"] or not failed_again}
    return [point for point in wanted if _place(point.to_dict()) not in done]


def with_point(
    document: Mapping[str, Any], point: Point, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document with one point more, in order; an older one of its place goes."""
    place = _place(point.to_dict())
    others = [one for one in document["points"] if _place(one) != place]
    return {**document, "points": sorted([*others, {**point.to_dict(), **found}], key=_place)}


def measured(figures: Mapping[str, Any], estimate: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a point that was measured, beside what the planner expected of it.

    The planner knows no load: what lengths it has taken is kept beside its expectation.
    """
    lengths = {name: estimate[name] for name in LENGTHS if name in estimate}
    return {
        "ok": True,
        "figures": dict(figures),
        "predicted": list(estimate.get("output_tokens_per_second") or ()) or None,
        **({"predicted_for": lengths} if lengths else {}),
    }


def failed(failures: Mapping[str, Mapping[str, Any]], now: str) -> dict[str, Any]:
    """Return what is kept of a point that failed: the first host's words, with their cause."""
    silent: dict[str, Any] = {"msg": "another host failed without a message"}
    host, whole = next(((host, one) for host, one in failures.items() if one), ("", silent))
    # Of a task in a loop, such as that which names the first failing line of each engine.
    items: Sequence[Mapping[str, Any]] = whole.get("results") or ()
    told = next((one for one in items if one.get("failed")), whole)
    words = {
        name: str(told[name])[:SHOWN_WORDS]
        for name in ("msg", "found", "cause", "fix")
        if told.get(name)
    }
    words.setdefault("msg", "it failed without a message")
    return {"ok": False, "failure": {**words, "host": host}, "at": now}


def _place(one: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(one[axis] for axis in AXES)
