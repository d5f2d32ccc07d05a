"""What an account pays for and a cluster does not claim: whose it is, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Orphan:
    """One instance: its price in US cents an hour, its age in hours where a tag tells it."""

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

    def line(self) -> str:
        """Return the instance as one line for people."""
        age = "" if self.hours is None else f", {self.hours:.1f} h, ${self.spent:.2f} so far"
        price = f"${self.cents_per_hour / 100:.2f}/h"
        return (
            f"{self.id} {self.name or '-'}: {self.why}; {self.type} in {self.region}, {price}{age}"
        )

    @property
    def spent(self) -> float:
        """US dollars since its launch."""
        return self.cents_per_hour / 100 * (self.hours or 0.0)


def unknown(wanted: Sequence[str], found: Sequence[Orphan]) -> list[str]:
    """Return what was asked to be ended and is no orphan."""
    return sorted(set(wanted) - {one.id for one in found})
