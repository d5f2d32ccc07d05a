"""The evidence that the stage verify leaves on the head, for the next run and for the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def kept(
    fingerprint: str,
    before: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    now: datetime,
) -> dict[str, Any]:
    """Return what to keep of this run's gates.

    verdicts: what each gate returned; one that failed, or never ran since another had failed, means
    that the cluster was not accepted, and so does one that waits for a second measurement.
    `baseline`, which later runs are compared with, is the best accepted run on the same hosts: what
    replaced it each time would let a link fade unseen.
    """
    accepted = all(
        one and not any(one.get(name) for name in ("failed", "skipped", "again"))
        for one in verdicts
    )
    rows = [row for one in verdicts for row in one.get("rows", [])]
    measured: Mapping[str, Any] = next((one["links"] for one in verdicts if one.get("links")), {})
    return {
        "accepted": accepted,
        "fingerprint": fingerprint,
        "measured_at": now.isoformat(timespec="seconds"),
        "rows": rows,
        "summaries": [one["evidence"]["summary"] for one in verdicts if one.get("evidence")],
        # What orders the lines of several hosts' logs; a look without links measures none.
        "clocks": _clocks(verdicts) or before.get("clocks", {}),
        "links": measured if accepted else before.get("links", {}),
        "baseline": _better(before.get("baseline", {}), measured if accepted else {}),
        "rejected": {} if accepted else measured,
    }


def _clocks(verdicts: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return by how many seconds each host's clock is ahead of most others'."""
    for one in verdicts:
        values = (one.get("evidence") or {}).get("values") or one.get("values") or {}
        if found := values.get("clock_offset_seconds"):
            return dict(found)
    return {}


def _better(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    if not new or not old or old["hosts"] != new["hosts"]:
        return new or old
    return new if _rate(new) > _rate(old) else old


def _rate(links: Mapping[str, Any]) -> float:
    figures = links["across"] or next(iter(links["inside"].values()))
    return float(figures["all_reduce"]["busbw"])
