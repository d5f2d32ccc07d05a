"""What a person is told of a machine beside the cluster, by the name of its part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import words
from .ending import Ended
from .ledger import HOUR, Entry
from .provider import Provider, Settings

# What the machine of each part is for.
PURPOSES = {"fill": "a machine that fills the volume", "load": "a machine that sends the load"}


def needless(part: str, why: str) -> dict[str, Any]:
    """Return the result of a task that rents nothing, and why."""
    return {"needed": False, "evidence": {"gate": part, "summary": why, "values": {}}}


def of_part(cloud: Provider, part: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a task that rents the cluster's machines, as one of a part's."""
    if not part:
        return dict(result)
    found = {**result, "needed": True}
    if found.get("failed"):
        found["fix"] = (
            f"run the same command again, with other {cloud.name}_cpu_types if need be, or with "
            f"{cloud.name}_{part}: false; playbooks/teardown.yml ends what is rented"
        )
    if "evidence" in found:
        found["evidence"] = {**found["evidence"], "gate": part}
    return found


def ended(
    cloud: Provider,
    part: str,
    wanted: Settings,
    done: Ended,
    cost: Sequence[Entry],
    finished: str,
    now: float,
) -> dict[str, Any]:
    """Return the result of a task that has ended the machine of a part.

    `cost` is what the ledger has of it, `finished` what it has done, in words.
    """
    cents = sum(one.cents(now) for one in cost)
    result = words.ended(cloud, done, cents, done.left, "")
    if result.get("failed"):
        return result
    hours = sum((one.until or now) - one.since for one in cost) / HOUR
    rented = f"{words.kinds(done.ended)} ended after {hours:.1f} h, about ${cents / 100:.2f}"
    following = f"next: provision, which rents {wanted.count} x {' or '.join(wanted.types)}"
    said = [finished, rented if done.ended else "", following if finished else ""]
    summary = "; ".join(one for one in said if one)
    return {**result, "evidence": {"gate": part, "summary": summary, "values": result}}
