"""Find the host or the pair that loses datagrams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.verify.reach.culprits import culprits

Pair = tuple[str, str]  # sender, receiver

# One datagram may be lost by chance. At 0.5 % one TCP stream over 100 us carries 2 Gbit/s at most
# (Mathis et al. 1997: 1.22 MSS / (RTT sqrt(loss))).
LEAST_FRACTION = 0.005
LEAST_LOST = 2


@dataclass(frozen=True)
class Count:
    """Datagrams that were sent in one direction, and how many of them were lost on the way."""

    sent: int = 0
    lost: int = 0

    @property
    def fraction(self) -> float:
        """Return the lost part, 0 to 1."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def lossy(self) -> bool:
        """Tell whether this is more than chance."""
        return self.lost >= LEAST_LOST and self.fraction >= LEAST_FRACTION

    def __add__(self, other: Count) -> Count:
        """Return both together."""
        return Count(self.sent + other.sent, self.lost + other.lost)


@dataclass(frozen=True)
class Lossy:
    """A host whose links lose datagrams, or a pair; with the directions in which they do."""

    hosts: tuple[str, ...]
    directions: tuple[Pair, ...]


def counts(probes: Mapping[Pair, Mapping[str, Any]]) -> tuple[dict[Pair, Count], list[Pair]]:
    """Return the count of each direction, and the pairs where no datagram came through.

    `probes` has what each host (first) measured to a peer. Its datagrams there count for one
    direction, those that came back for the other.
    """
    found: dict[Pair, Count] = {}
    silent = []
    for (one, other), loss in probes.items():
        sent, arrived, returned = loss["sent"], loss["arrived"], loss["returned"]
        if not sent:
            continue
        if not arrived or not returned:
            # Not loss: a firewall that lets no UDP through, in one of the directions.
            silent.append((one, other))
            continue
        there = Count(sent, max(0, sent - arrived - loss["dropped_there"]))
        back = Count(arrived, max(0, arrived - returned - loss["dropped_here"]))
        found[one, other] = found.get((one, other), Count()) + there
        found[other, one] = found.get((other, one), Count()) + back
    return found, silent


def attribute(found: Mapping[Pair, Count]) -> list[Lossy]:
    """Return who loses datagrams: a host where most of its pairs do, else each pair."""
    lossy = [pair for pair, count in found.items() if count.lossy]
    causes = culprits({frozenset(pair) for pair in lossy}, {frozenset(pair) for pair in found})
    return [
        Lossy(hosts, tuple(pair for pair in lossy if frozenset(pair) in pairs))
        for hosts, pairs in causes.items()
    ]
