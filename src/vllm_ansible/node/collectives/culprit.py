"""Tell from the rates of pairs what is slow: one unit, one pair, or what joins two sides.

A unit is a host or a card. Every conclusion needs two things: the slow pairs it explains, and fast
pairs that clear everybody else. Nothing here measures.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

# A pair below this part of the best ones is slow. Links that vary by 20 % either way are 0.67 apart
# at worst, and TCP fills one link to 0.86 and another to 0.95 of its rate: 0.6. Half the rate of
# like links is 0.5.
SLOW = 0.55
# And below this part of the middle of all pairs that are not. Of links between 0.8 and 1.2 of their
# rate, the worst pair came to 0.55 of the best ones and 0.7 of the middle, half a link to 0.5.
SLOW_BESIDE_MIDDLE = 0.6
# The best tenth may be a lucky measurement, so the reference stands just below it.
REFERENCE = 0.9

Pair = tuple[str, str]


@dataclass(frozen=True)
class Culprit:
    """What is slow. `kind` is none, node, pair, side, several or undecided.

    members: the nodes; the two ends of a pair; those of the smaller side; all ends of several.
    conclusive: nothing that was measured speaks against it and everybody else is cleared.
    """

    kind: str
    members: tuple[str, ...] = ()
    slow: tuple[Pair, ...] = ()
    reference: float = 0.0
    conclusive: bool = False
    sides: tuple[tuple[str, ...], ...] = field(default=())


def reference(rates: Sequence[float]) -> float:
    """Return the rate that a healthy pair should have: the 90th percentile, nearest rank."""
    ordered = sorted(rates)
    return ordered[math.ceil(REFERENCE * len(ordered)) - 1]


def slow_pairs(rates: Mapping[Pair, float], least: float = 0.0) -> tuple[list[Pair], float]:
    """Return the slow pairs, slowest first, and the rate beside which they are slow.

    least: a rate every pair must have, when one is known from elsewhere; with two units it is the
    only measure there is.
    """
    if not rates:
        return [], 0.0
    usual = max(reference(list(rates.values())), least)
    found = [pair for pair, rate in rates.items() if rate < SLOW * usual]
    fast = [rate for pair, rate in rates.items() if pair not in found]
    if fast:
        # The best pairs of links that vary are far above the worst; the middle is not.
        middle = max(statistics.median(fast), least)
        found = [pair for pair in found if rates[pair] < SLOW_BESIDE_MIDDLE * middle]
    return sorted(found, key=lambda pair: rates[pair]), usual


def find(rates: Mapping[Pair, float], least: float = 0.0) -> Culprit:
    """Return what explains the slow pairs among those measured so far.

    rates: the best rate seen for each pair, in any unit; each pair once, in any order.
    """
    slow, usual = slow_pairs(rates, least)
    fast = [pair for pair in rates if pair not in slow]
    if not slow:
        return Culprit("none", reference=usual)
    if len(slow) == len(rates):
        alone = len(rates) == 1
        return Culprit("pair" if alone else "undecided", _ends(slow), tuple(slow), usual, alone)
    cleared = frozenset(_ends(fast))
    suspects = [unit for unit in _ends(slow) if unit not in cleared]
    if suspects and all(set(pair) & set(suspects) for pair in slow):
        return _nodes(suspects, slow, cleared, usual)
    sides = _two_sides(slow, fast)
    if sides and len(sides[0]) > 1:
        # Three slow pairs that no unit and no pair explains are not chance.
        return Culprit("side", sides[0], tuple(slow), usual, len(slow) >= 3, sides)
    if len(slow) == 1:
        return Culprit("pair", slow[0], tuple(slow), usual, cleared.issuperset(slow[0]))
    return Culprit("several", _ends(slow), tuple(slow), usual)


def _nodes(suspects: list[str], slow: list[Pair], cleared: frozenset[str], usual: float) -> Culprit:
    """Return the suspects that are slow with everybody they met."""
    met = {unit: [pair for pair in slow if unit in pair] for unit in suspects}
    guilty = [unit for unit in suspects if len(met[unit]) > 1] or suspects
    explained = all(set(pair) & set(guilty) for pair in slow)
    # Slow with two that are fast with others; and two slow nodes are slow with each other, or else
    # they may be no more than the smaller side of a slow switch.
    sure = all(len(cleared.intersection(_ends(met[one]))) > 1 for one in guilty)
    told_apart = len(guilty) == 1 or any(set(pair) <= set(guilty) for pair in slow)
    if len(slow) == 1:
        return Culprit("undecided", slow[0], tuple(slow), usual)
    return Culprit("node", tuple(guilty), tuple(slow), usual, explained and sure and told_apart)


def _two_sides(slow: list[Pair], fast: list[Pair]) -> Optional[tuple[tuple[str, ...], ...]]:
    """Return two sides with every slow pair across and every fast one within, smaller first."""
    links: dict[str, list[tuple[str, bool]]] = {}
    for pairs, across in ((slow, True), (fast, False)):
        for first, second in pairs:
            links.setdefault(first, []).append((second, across))
            links.setdefault(second, []).append((first, across))
    start = next(iter(links))
    side = {start: False}
    todo = [start]
    while todo:
        unit = todo.pop()
        for other, across in links[unit]:
            wanted = side[unit] != across
            if other not in side:
                side[other] = wanted
                todo.append(other)
            elif side[other] != wanted:
                return None
    if len(side) < len(links):  # what was measured falls apart: too early to tell
        return None
    one = tuple(sorted(unit for unit, far in side.items() if not far))
    two = tuple(sorted(unit for unit, far in side.items() if far))
    return tuple(sorted((one, two), key=lambda members: (len(members), members)))


def _ends(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(sorted({unit for pair in pairs for unit in pair}))
