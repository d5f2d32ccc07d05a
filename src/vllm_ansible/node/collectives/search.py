"""Search for what is slow, round by round, and stop as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .culprit import Culprit, Pair, find, slow_pairs
from .pairing import rounds

# How often slow pairs are measured again, as long as they stay slow.
REPEATS = 3
# Below this part of the usual rate two more are enough: no noise reaches so far twice. Healthy
# links that vary by 20 % either way came to 0.5 in short measurements, and to 0.59 in long ones.
SURE = 0.42
# Rates of pairs that share no end, measured at the same time; 0 is a pair that carried nothing.
# The number says how often they were measured before: TCP needs time to fill a link, so a pair
# that looked slow has to be given more of it.
Measure = Callable[[Sequence[Pair], int], Mapping[Pair, float]]


@dataclass
class Search:
    """What the rounds so far have shown.

    rates: the best rate of each pair, in what `measure` returns. repeated: pairs measured again
    because they looked slow; noise: those of them that were not.
    """

    rates: dict[Pair, float] = field(default_factory=dict)
    rounds: int = 0
    repeated: list[Pair] = field(default_factory=list)
    noise: list[Pair] = field(default_factory=list)
    culprit: Culprit = field(default_factory=lambda: Culprit("none"))


def search(
    units: Sequence[str],
    measure: Measure,
    least: float = 0.0,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Search:
    """Measure rounds of disjoint pairs until the culprit is certain, or every pair has been seen.

    A fault stays and noise goes, so the slow pairs of a round are measured again, and the best
    figure counts. least is in the unit of the rates; told hears of each round.
    """
    found = Search()
    left = rounds(units)
    count = len(left)
    while left and not found.culprit.conclusive:
        pairs = _next(left, found.culprit)
        left.remove(pairs)
        found.rates.update(measure(pairs, 0))
        _repeat(found, pairs, measure, least)
        found.rounds += 1
        told(found.rounds, count)
        found.culprit = find(found.rates, least)
    return found


def _repeat(found: Search, pairs: Sequence[Pair], measure: Measure, least: float) -> None:
    """Measure the slow pairs of a round again, until they are not slow or it was often enough."""
    for times in range(1, REPEATS + 1):
        slow, usual = slow_pairs(found.rates, least)
        near = SURE * usual if times > 2 else 0.0
        doubtful = [pair for pair in slow if pair in pairs and found.rates[pair] >= near]
        if not doubtful:
            return
        for pair, rate in measure(doubtful, times).items():
            found.rates[pair] = max(rate, found.rates[pair])
        still = slow_pairs(found.rates, least)[0]
        found.repeated += doubtful
        found.noise += [pair for pair in doubtful if pair not in still]


def _next(left: list[list[Pair]], culprit: Culprit) -> list[Pair]:
    """Return the round that tells most: where those who are suspected meet each other.

    Two slow nodes are slow with each other, two on the same side of a slow switch are not.
    """
    if culprit.kind == "none":
        return left[0]
    suspects = set(culprit.members)
    return max(left, key=lambda pairs: sum(1 for pair in pairs if suspects.issuperset(pair)))
