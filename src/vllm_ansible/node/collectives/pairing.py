"""Rounds of disjoint pairs: every unit talks with one other at a time, and in the end with all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Unit = TypeVar("Unit")


def rounds(units: Sequence[Unit]) -> list[list[tuple[Unit, Unit]]]:
    """Return the rounds in which every pair of units meets exactly once.

    N - 1 rounds for an even number of units; N for an odd one, each unit resting once. This is the
    circle method of round-robin tournaments. Two rounds that follow each other join all units in
    one ring (for an odd number, one chain), so that two rounds already relate each unit to all.
    """
    if len(units) < 2:
        return []
    seats: list[int] = list(range(len(units)))
    if len(seats) % 2:
        seats.append(-1)
    found = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = [sorted((seats[place], seats[-1 - place])) for place in range(half)]
        found.append([(units[first], units[second]) for first, second in met if first >= 0])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found
