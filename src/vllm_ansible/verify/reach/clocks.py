"""Find the host whose clock is not that of the others."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[str, str]  # who asked, whose clock

# Tokens expire, certificates begin and logs are ordered by clocks.
FAIL_SECONDS = 1.0
WARN_SECONDS = 0.1


@dataclass(frozen=True)
class Offset:
    """How far a host's clock is ahead of most others', and how exactly that is known."""

    seconds: float
    uncertainty: float

    def beyond(self, limit: float) -> bool:
        """Tell whether it is surely more than the limit."""
        return abs(self.seconds) - self.uncertainty > limit


@dataclass(frozen=True)
class Clocks:
    """Each host's offset, those that are off, and whether most hosts agree on a time at all."""

    offsets: Mapping[str, Offset]
    wrong: tuple[str, ...]
    doubtful: tuple[str, ...]
    majority: bool
    unknown: tuple[str, ...]


def judge(probes: Mapping[Pair, Mapping[str, Any]], hosts: tuple[str, ...]) -> Clocks:
    """Return every host's offset from the time that most hosts have."""
    relative = _relative(probes, hosts)
    if not relative:
        return Clocks({}, (), (), True, hosts)
    usual = statistics.median_low([one.seconds for one in relative.values()])
    offsets = {name: Offset(one.seconds - usual, one.uncertainty) for name, one in relative.items()}
    wrong = tuple(name for name, one in offsets.items() if one.beyond(FAIL_SECONDS))
    doubtful = tuple(
        name for name, one in offsets.items() if one.beyond(WARN_SECONDS) and name not in wrong
    )
    off = len(wrong) or len(doubtful)
    unknown = tuple(name for name in hosts if name not in offsets)
    return Clocks(offsets, wrong, doubtful, 2 * off < len(offsets), unknown)


def _relative(
    probes: Mapping[Pair, Mapping[str, Any]], hosts: tuple[str, ...]
) -> dict[str, Offset]:
    """Return each clock less one host's, over the fewest and best known steps."""
    edges: dict[str, dict[str, Offset]] = {name: {} for name in hosts}
    for (one, other), found in probes.items():
        offset, uncertainty = found["clock_offset_seconds"], found["clock_uncertainty_seconds"]
        for here, there, sign in ((one, other, 1), (other, one, -1)):
            known = edges[here].get(there)
            if known is None or uncertainty < known.uncertainty:
                edges[here][there] = Offset(sign * offset, uncertainty)
    if not any(edges.values()):
        return {}
    first = max(hosts, key=lambda name: len(edges[name]))
    found_all = {first: Offset(0.0, 0.0)}
    queue = [first]
    while queue:
        here = queue.pop(0)
        for there, step in edges[here].items():
            if there not in found_all:
                so_far = found_all[here]
                found_all[there] = Offset(
                    so_far.seconds + step.seconds, so_far.uncertainty + step.uncertainty
                )
                queue.append(there)
    return {name: found_all[name] for name in hosts if name in found_all}
