"""What an account pays for and a cluster does not claim: whose it is, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .price import dollars

INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class Orphan:
    """One instance: its price in US cents an hour, its age in hours where a tag tells it.

    `kind` says what it is where it is no instance, such as a volume that one has left.
    """

    id: str
    name: str
    status: str
    type: str
    region: str
    cents_per_hour: int
    cluster: str = ""
    owner: str = ""
    hours: float | None = None
    why: str = ""
    kind: str = INSTANCE

    def line(self) -> str:
        """Return the instance as one line for people."""
        age = "" if self.hours is None else f", {self.hours:.1f} h"
        spent = f", ${self.spent:.2f} so far" if age and self.cents_per_hour else ""
        place = f"{self.type} in {self.region}, {dollars(self.cents_per_hour)}"
        return f"{self.id} {self.name or '-'}: {self.why}; {place}{age}{spent}"

    @property
    def spent(self) -> float:
        """US dollars since its launch."""
        return self.cents_per_hour / 100 * (self.hours or 0.0)


def counted(found: Sequence[Orphan]) -> str:
    """Return how many there are, of instances or of what else there is among them."""
    kinds = {one.kind for one in found} or {INSTANCE}
    if len(found) == 1:
        return f"1 {kinds.pop()}"
    others = "instances and other resources" if INSTANCE in kinds else "resources"
    return f"{len(found)} {'instances' if kinds == {INSTANCE} else others}"


def unknown(wanted: Sequence[str], found: Sequence[Orphan]) -> list[str]:
    """Return what was asked to be ended and is no orphan."""
    return sorted(set(wanted) - {one.id for one in found})
