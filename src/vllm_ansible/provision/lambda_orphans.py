"""Instances of an account that this cluster does not claim: whose they are, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .fleet import GONE, first
from .lambda_fleet import CLUSTER, OWNER, SINCE, cluster_of, machine, slot_of, tags
from .lambda_settings import Settings
from .orphans import Orphan

HOUR = 3600.0


def orphans(
    listed: Iterable[Mapping[str, Any]],
    settings: Settings,
    now: Callable[[], float] = time.time,
) -> list[Orphan]:
    """Return every instance that is no machine of a slot of this cluster."""
    slots = range(settings.count + settings.spares)
    found = []
    held: set[int] = set()
    living = [one for one in listed if one["status"] not in GONE]
    # As the cluster chooses: of two machines of a slot it keeps the first one.
    for one in sorted(living, key=_order):
        mine = tags(one)
        why = _why(one, settings.cluster, slots)
        if not why and (slot := slot_of(one)) not in held:
            held.add(slot)
            continue
        why = why or f"of this cluster, whose slot {slot} has a machine already"
        since = mine.get(SINCE, "")
        found.append(
            Orphan(
                id=str(one["id"]),
                name=str(one.get("name") or ""),
                status=str(one["status"]),
                type=str(one["instance_type"]["name"]),
                region=str(one["region"]["name"]),
                cents_per_hour=int(one["instance_type"]["price_cents_per_hour"]),
                cluster=mine.get(CLUSTER, ""),
                owner=mine.get(OWNER, ""),
                hours=(now() - float(since)) / HOUR if since.isdecimal() else None,
                why=why,
            )
        )
    return sorted(found, key=lambda one: (one.cluster, one.name, one.id))


def _order(one: Mapping[str, Any]) -> tuple[bool, float]:
    """Return the sort key of an instance, which has no slot where it is of nobody of ours."""
    return first(machine(one)) if cluster_of(one) is not None else (True, 0.0)


def _why(one: Mapping[str, Any], cluster: str, slots: range) -> str:
    mine = tags(one)
    if CLUSTER not in mine:
        return "not rented by vllm-ansible"
    if mine[CLUSTER] != cluster:
        return f"of cluster {mine[CLUSTER]}, rented by {mine.get(OWNER, 'somebody')}"
    if cluster_of(one) is None:
        return "of this cluster, but of no slot (none)"
    slot = slot_of(one)
    return "" if slot in slots else f"of this cluster, but of no slot ({slot})"
