"""Figures over the number of users, as SVG: medians as lines, the range over rounds as bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.picture import COLOURS, DIM, INK, LINE
from vllm_ansible.sweep.drawing import dot, line, round_step, text

WIDTH, HEIGHT = 560, 330
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 66, 52
TICKS = 5
LIMIT = "#b42318"


@frozen
class Series:
    """One line: for each number of users the median, the least and the most over rounds."""

    name: str
    values: Mapping[int, tuple[float, float, float]]
    dash: str = ""


@frozen
class Mark:
    """What a figure is read against: a level, or a band at one number of users."""

    name: str
    low: float
    high: float
    users: int = 0


def figure(
    title: str, unit: str, series: Sequence[Series], knee: int = 0, marks: Sequence[Mark] = ()
) -> str:
    """Return one figure; series without a value are left out."""
    shown = [one for one in series if one.values]
    places = sorted({users for one in shown for users in one.values})
    if not places:
        return ""
    x = _across(places)
    most = max(high for one in shown for _, _, high in one.values.values())
    # A limit far above everything would press what was measured flat.
    near = [mark for mark in marks if mark.low <= 1.6 * most]
    most = max([most, *(mark.high for mark in near)])
    step = round_step(most / TICKS) if most else 1.0
    top = step * math.ceil(most / step + 0.02)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [text(16, 22, f"{title}, {unit}", "start", 15, INK)]
    for number in range(round(top / step) + 1):
        level = y(number * step)
        parts.append(line([(LEFT, level), (WIDTH - RIGHT, level)], LINE, 1))
        parts.append(text(LEFT - 8, level + 4, f"{number * step:,.6g}", "end", 11))
    last = -math.inf
    for users in places:
        if x[users] - last > 8 + 7 * len(str(users)):
            parts.append(text(x[users], HEIGHT - BOTTOM + 18, f"{users:,}", "middle", 11))
            last = x[users]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "users", "middle", 12))
    if knee in x:
        parts.append(line([(x[knee], TOP - 6), (x[knee], HEIGHT - BOTTOM)], DIM, 1, "3 4"))
        parts.append(text(x[knee], TOP - 10, "knee", "middle", 11))
    for mark in near:
        parts += _mark(mark, x, y(mark.low), y(mark.high))
    at = float(LEFT)
    for number, one in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        heights = {users: tuple(map(y, values)) for users, values in one.values.items()}
        parts += _line(one, colour, x, heights)
        parts += [line([(at, 39), (at + 18, 39)], colour, 2.5, one.dash)]
        parts += [text(at + 23, 43, one.name, "start", 12)]
        at += 42 + 6.8 * len(one.name)
    for mark in near:
        parts += [line([(at, 39), (at + 18, 39)], LIMIT, 2, "6 4")]
        parts += [text(at + 23, 43, mark.name, "start", 12)]
        at += 42 + 6.8 * len(mark.name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, Liberation Sans, sans-serif" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _across(places: Sequence[int]) -> dict[int, float]:
    """Return where each number of users is drawn; twice as many are as far away everywhere."""
    first, last = math.log2(places[0]), math.log2(places[-1])
    left, right = LEFT + 22, WIDTH - RIGHT - 22
    if first == last:
        return {places[0]: (left + right) / 2}
    scale = (right - left) / (last - first)
    return {users: left + scale * (math.log2(users) - first) for users in places}


def _line(
    series: Series, colour: str, x: Mapping[int, float], y: Mapping[int, tuple[float, ...]]
) -> list[str]:
    order = sorted(series.values)
    parts = [line([(x[users], y[users][0]) for users in order], colour, 2.2, series.dash)]
    for users in order:
        middle, low, high = series.values[users]
        at_middle, at_low, at_high = y[users]
        if high > low:
            parts.append(line([(x[users], at_low), (x[users], at_high)], colour, 1.4))
            for end in (at_low, at_high):
                parts.append(line([(x[users] - 4, end), (x[users] + 4, end)], colour, 1.4))
        told = f"{series.name} at {users} users: {middle:,.6g} ({low:,.6g} to {high:,.6g})"
        parts.append(dot((x[users], at_middle), colour, colour, told))
    return parts


def _mark(mark: Mark, x: Mapping[int, float], low: float, high: float) -> list[str]:
    """Return a level over the whole width, or a bar from low to high at its number of users."""
    if not mark.users:
        return [line([(LEFT, low), (WIDTH - RIGHT, low)], LIMIT, 1.5, "6 4")]
    if mark.users not in x:
        return []
    at = x[mark.users] + 9
    return [
        line([(at, low), (at, high)], LIMIT, 2.5),
        *(line([(at - 5, end), (at + 5, end)], LIMIT, 2.5) for end in (low, high)),
    ]
