"""Measure pairs of hosts and pairs of cards, as many at once as share no end.

A pair of hosts exchanges over all rails at once: card k of one with card k of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .coordinator import Coordinator
from .culprit import SLOW, Culprit, Pair, find
from .operations import GB, Report, Wishes, fitting_bytes
from .pairing import rounds
from .search import search

LONGER_SECONDS = 0.8


@dataclass
class Rail:
    """Two ranks that exchange: what each direction carries in GB/s, and the latency in seconds."""

    ranks: tuple[int, int]
    gbs: float = 0.0
    latency: float = 0.0
    wrong: int = 0


class Exchanges:
    """Exchanges between the ranks that a coordinator leads.

    rate: what one rank's link carries, in GB/s, as far as it is known; it sizes the messages.
    """

    def __init__(self, lead: Coordinator, wishes: Wishes, rate: float, report: Report) -> None:
        self.lead = lead
        self.wishes = wishes
        self.bytes = fitting_bytes(rate, wishes.seconds / 2, wishes.most)
        self.report = report

    def run(self, rails: Sequence[Rail], size: int = 0) -> None:
        """Measure disjoint rails at the same time; with a size of their own, twice at most."""
        iterations = min(2, self.wishes.iterations) if size else self.wishes.iterations
        size = size or self.bytes
        peers = {
            end: peer for rail in rails for end, peer in (rail.ranks, tuple(reversed(rail.ranks)))
        }
        wanted = {"do": "pair", "size": size, "warm_up": 0}
        wanted["iterations"] = iterations
        answers = self.lead.ask({rank: {**wanted, "peer": peer} for rank, peer in peers.items()})
        for rail in rails:
            one, other = (answers[end] for end in rail.ranks)
            best = min(map(max, zip(one["seconds"], other["seconds"])))  # noqa: B905 Python 3.9
            rail.gbs = max(rail.gbs, size / best / GB)
            rail.latency = max(one["latency"], other["latency"])
            rail.wrong += one["wrong"] + other["wrong"]

    def hosts(self) -> dict[str, Any]:
        """Search the pairs of hosts; return their rates, the rounds it took and the culprit."""
        hosts = self.lead.hosts
        rails: dict[Pair, list[Rail]] = {}

        def measure(pairs: Sequence[Pair], before: int) -> dict[Pair, float]:
            for pair in pairs:
                ends = zip(hosts[pair[0]], hosts[pair[1]])  # noqa: B905 unequal hosts
                rails.setdefault(pair, [Rail(end) for end in ends])
            chosen = [rail for pair in pairs for rail in rails[pair]]
            self.run(chosen, self.longer(chosen, before) if before else 0)
            # One slow rail of eight would hardly show in a sum.
            return {pair: min(rail.gbs for rail in rails[pair]) for pair in pairs}

        found = search(
            list(hosts),
            measure,
            self.wishes.least_pair,
            lambda done, of: self.report(done, of, "rounds", "pairs of hosts"),
        )
        return {
            "pairs": [described(pair, rails[pair]) for pair in sorted(rails)],
            "rounds": found.rounds,
            "bytes": self.bytes,
            "noise": found.noise,
            "culprit": {**asdict(found.culprit), "cards": slow_cards(found.culprit, rails)},
        }

    def longer(self, rails: Sequence[Rail], times: int) -> int:
        """Return bytes that take the slowest of some rails 0.8 s, and as much more each time."""
        slowest = min(rail.gbs for rail in rails)
        return max(self.bytes, fitting_bytes(slowest, times * LONGER_SECONDS, self.wishes.most))

    def cards(self) -> dict[str, Any]:
        """Measure all pairs of cards in each host, all hosts at once; return them by host."""
        hosts = {host: ranks for host, ranks in self.lead.hosts.items() if len(ranks) > 1}
        schedule = {host: rounds(list(map(str, range(len(one))))) for host, one in hosts.items()}
        rails: dict[str, dict[Pair, Rail]] = {host: {} for host in hosts}
        longest = max(map(len, schedule.values()), default=0)
        for number in range(longest):
            self.report(number, longest, "rounds", "pairs of cards")
            for host, its_rounds in schedule.items():
                for pair in its_rounds[number] if number < len(its_rounds) else ():
                    ends = (hosts[host][int(pair[0])], hosts[host][int(pair[1])])
                    rails[host][pair] = Rail(ends)
            self.run([rail for host in hosts for rail in rails[host].values() if not rail.gbs])
        return {
            host: {
                "pairs": [described(pair, [rail]) for pair, rail in sorted(one.items())],
                "culprit": asdict(find({pair: rail.gbs for pair, rail in one.items()})),
            }
            for host, one in rails.items()
        }


def described(pair: Pair, rails: Sequence[Rail]) -> dict[str, Any]:
    """Return the figures of one pair; gbs is the sum over its rails, one direction."""
    return {
        "first": pair[0],
        "second": pair[1],
        "gbs": sum(rail.gbs for rail in rails),
        "rails": [rail.gbs for rail in rails],
        "latency": max(rail.latency for rail in rails),
        "wrong": sum(rail.wrong for rail in rails),
    }


def slow_cards(culprit: Culprit, rails: dict[Pair, list[Rail]]) -> list[int]:
    """Return which cards of slow hosts are slow with everybody; none where all of them are."""
    if culprit.kind != "node":
        return []
    measured = [rails[pair] for pair in culprit.slow]
    cards = range(min(map(len, measured)))
    slow = [
        card for card in cards if all(one[card].gbs < SLOW * culprit.reference for one in measured)
    ]
    return slow if len(slow) < len(cards) else []
