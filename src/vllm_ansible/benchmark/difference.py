"""Whether two measurements differ by more than their own noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from vllm_ansible.frozen import frozen

SAME, HIGHER, LOWER, UNKNOWN = "same", "higher", "lower", "unknown"


@frozen
class Difference:
    """The ratio of B to A, with the bounds that it lies within, and what may be said of it."""

    ratio: float
    low: float
    high: float
    word: str


def difference(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], margin: float, error: float
) -> Difference | None:
    """Return how B stands to A. Each has its rounds, each round a value for each condition.

    A round counts as the geometric mean over its conditions, and rounds against each other: what
    disturbs a machine for minutes disturbs all conditions of a round, which are not independent.
    Welch's interval holds the ratio, with a probability of `error` that it does not. `margin` is
    the least difference that matters, such as 0.03. None where there is nothing to compare.
    """
    values = [value for one in (*a, *b) for value in one]
    if not a or not b or not values or min(values) <= 0:
        return None
    rounds = [[fmean(map(math.log, one)) for one in side] for side in (a, b)]
    middle = fmean(rounds[1]) - fmean(rounds[0])
    if min(map(len, rounds)) < 2:
        # One round says nothing about its noise.
        return Difference(math.exp(middle), 0.0, math.inf, UNKNOWN)
    parts = [(variance(one) / len(one), len(one) - 1) for one in rounds]
    whole = sum(part for part, _ in parts)
    reach = 0.0
    if whole > 0:
        degrees = whole**2 / sum(part**2 / free for part, free in parts)
        reach = quantile(1 - error / 2, max(1, math.floor(degrees))) * math.sqrt(whole)
    low, high = middle - reach, middle + reach
    return Difference(
        math.exp(middle), math.exp(low), math.exp(high), _word(low, high, math.log1p(margin))
    )


def _word(low: float, high: float, margin: float) -> str:
    """Return what bounds say: within the margin is the same, also where they exclude equality."""
    if -margin <= low and high <= margin:
        return SAME
    if low > 0:
        return HIGHER
    return LOWER if high < 0 else UNKNOWN


def quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t above one half, of a whole number of degrees."""
    low, high = 0.0, 1.0
    while _below(high, degrees) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _below(t: float, degrees: int) -> float:
    """Return Student's distribution by its finite series (Abramowitz and Stegun 26.7.3, 4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for number in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine**2 * (number - 1) / number
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 + within) / 2
