"""Measure collective operations over all ranks and inside each host; the ranks stay up."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .coordinator import Coordinator

# Bus bandwidth is algorithm bandwidth times this, for n ranks: nccl-tests, doc/PERFORMANCE.md.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
GB = 1e9
FIRST_BYTES = 1 << 18
# Less says more of latency than of bandwidth.
LEAST_BYTES = 1 << 20
LATENCY_BYTES = 1 << 10
# Which group a rank works in: the one of all ranks, or that of its own host.
ALL, OWN_HOST = 0, -1
Figures = dict[str, Any]
Report = Callable[..., None]


@dataclass(frozen=True)
class Wishes:
    """How much to measure.

    size: bytes of a collective; 0 takes what an all_reduce of about `seconds` carries, a power of
    two from 1 MiB to `most`. A pair exchanges what its link carries in half that time.
    least_pair: the rate in GB/s that every pair of hosts must have, 0 where none is known.
    """

    size: int = 0
    seconds: float = 0.2
    most: int = 1 << 30
    iterations: int = 3
    least_pair: float = 0.0


def fitting_bytes(rate: float, seconds: float, most: int) -> int:
    """Return the power of two that a rate in GB/s carries in that time, within the bounds."""
    size = FIRST_BYTES
    while size * 2 <= min(most, rate * GB * seconds):
        size *= 2
    return size


def figures(operation: str, size: int, answers: Sequence[Figures]) -> Figures:
    """Return the median time of an operation that is done when its last rank is.

    bytes, seconds, algbw and busbw in GB/s of 1e9 bytes, and how many elements were wrong.
    """
    together = [max(times) for times in zip(*(answer["seconds"] for answer in answers))]  # noqa: B905 Python 3.9
    seconds = statistics.median(together)
    rate = size / seconds / GB
    return {
        "operation": operation,
        "bytes": size,
        "seconds": seconds,
        "algbw": rate,
        "busbw": rate * FACTORS[operation](len(answers)),
        "wrong": sum(int(answer["wrong"]) for answer in answers),
    }


class Operations:
    """Every operation over one kind of group."""

    def __init__(self, lead: Coordinator, wishes: Wishes, report: Report) -> None:
        self.lead = lead
        self.wishes = wishes
        self.report = report

    def across(self) -> dict[str, Figures]:
        """Return the figures by operation over all ranks."""
        return self._all(ALL)[""]

    def inside(self) -> dict[str, dict[str, Figures]]:
        """Return the figures by host and operation; all hosts with several ranks work at once."""
        return self._all(OWN_HOST) if any(len(one) > 1 for one in self.lead.hosts.values()) else {}

    def _all(self, group: int) -> dict[str, dict[str, Figures]]:
        size = self.wishes.size or self._fitting(group)
        found: dict[str, dict[str, Figures]] = {}
        for number, operation in enumerate(FACTORS):
            self.report(number, len(FACTORS), "operations", operation)
            for key, one in self.once(operation, size, group).items():
                found.setdefault(key, {})[operation] = one
        for key, one in self.once("all_reduce", LATENCY_BYTES, group).items():
            found[key]["latency"] = one
        return found

    def _fitting(self, group: int) -> int:
        """Return a size that takes about as long as wished; a small one says little of a link."""
        self.report(0, len(FACTORS), "operations", "sizing")
        wishes, size = self.wishes, FIRST_BYTES
        while True:
            found = self.once("all_reduce", size, group, 1)
            slowest = max(found.values(), key=lambda one: float(one["seconds"]))
            if slowest["seconds"] > wishes.seconds / 4 or size >= wishes.most:
                fitting = fitting_bytes(slowest["algbw"], wishes.seconds, wishes.most)
                return max(fitting, LEAST_BYTES)
            size = min(size * 4, wishes.most)

    def once(
        self, operation: str, size: int, group: int, iterations: int = 0
    ) -> dict[str, Figures]:
        """Run one operation; return its figures by host, or under an empty key for all ranks."""
        answers = self.lead.ask_all(
            do="collective",
            operation=operation,
            size=size,
            group=group,
            warm_up=1,
            iterations=iterations or self.wishes.iterations,
        )
        groups = (
            {"": list(answers)}
            if group == ALL
            else {host: ranks for host, ranks in self.lead.hosts.items() if len(ranks) > 1}
        )
        return {
            key: figures(operation, size, [answers[rank] for rank in ranks])
            for key, ranks in groups.items()
        }
