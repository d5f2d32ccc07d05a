"""Find the host that bad pairs have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

Ends = frozenset[str]


def culprits(bad: Collection[Ends], measured: Collection[Ends]) -> dict[tuple[str, ...], set[Ends]]:
    """Return who explains which bad pairs: a host where most of its pairs are bad, else each pair.

    A host is blamed only where at least two of its pairs are bad.
    """
    left = set(bad)
    found: dict[tuple[str, ...], set[Ends]] = {}
    while left:
        degrees = Counter(name for pair in left for name in pair)
        name, degree = min(degrees.items(), key=lambda one: (-one[1], one[0]))
        of_host = {pair for pair in left if name in pair}
        possible = sum(1 for pair in measured if name in pair)
        if degree < 2 or 2 * degree <= possible:
            return {**found, **{tuple(sorted(pair)): {pair} for pair in sorted(left, key=sorted)}}
        found[(name,)] = of_host
        left -= of_host
    return found
