"""When links are measured again: after a change of what carries them, or after some time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# What a measurement depends on; a new boot may come with another link.
OF_A_HOST = ("name", "address", "interface", "accelerator", "accelerator_count", "boot_id")


def fingerprint(
    hosts: Sequence[Mapping[str, Any]], environment: str, settings: Mapping[str, Any]
) -> str:
    """Return one value for hosts, drivers, the engine's environment and what is to be measured.

    A setting that says nothing does not count: releases before it had measured the same.
    """
    told = [
        {
            **{name: host[name] for name in OF_A_HOST},
            "driver": host["accelerators"]["driver_version"],
        }
        for host in hosts
    ]
    said = {
        name: value
        for name, value in settings.items()
        if (any(value) if isinstance(value, list) else value)
    }
    text = json.dumps([told, environment, said], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def reason(kept: Mapping[str, Any] | None, wanted: str, now: datetime, most_hours: float) -> str:
    """Return why links have to be measured; nothing while the kept evidence holds."""
    if not kept:
        return "they were never measured"
    if not kept.get("accepted"):
        return "the last measurement was not accepted"
    if kept.get("fingerprint") != wanted:
        return "hosts, drivers, environment or settings have changed since"
    age = now - datetime.fromisoformat(kept["measured_at"])
    if age > timedelta(hours=most_hours):
        return f"the evidence is {age.days} days old"
    return ""


@dataclass(frozen=True)
class Decision:
    """Whether to measure; where not, what stands instead, and what a person should be told."""

    measures: bool
    summary: str = ""
    warning: str = ""


def decide(why: str, kept: Mapping[str, Any], serving: Sequence[str]) -> Decision:
    """Return what to do for a reason to measure, `why`, on hosts where these engines run."""
    when = f"measured {kept['measured_at']}" if kept else "never measured"
    before = "; ".join([*kept.get("summaries", []), when]) if kept else when
    if not why:
        return Decision(False, before)
    if not serving:
        return Decision(True)
    told = f"links are not measured, though {why}: {', '.join(serving)} runs on them"
    return Decision(
        False, f"{told}; {before}", f"{told}. Stop it and run the stage verify to do so"
    )
