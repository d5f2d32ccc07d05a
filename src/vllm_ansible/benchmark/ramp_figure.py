"""Figures over the load, as SVG: medians as lines, the range over rounds as bars."""

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
    """One line: for each step the median, the least and the most over rounds."""

    name: str
    values: Mapping[float, tuple[float, float, float]]
    dash: str = ""


@frozen
class Mark:
    """What a figure is read against: a level, or a band at one step."""

    name: str
    low: float
    high: float
    step: float = 0


def figure(
    title: str,
    unit: str,
    series: Sequence[Series],
    knee: float = 0,
    marks: Sequence[Mark] = (),
    across: str = "users",
) -> str:
    """Return one figure over what across names; series without a value are left out."""
    shown = [one for one in series if one.values]
    places = sorted({step for one in shown for step in one.values})
    if not places:
        return ""
    x = _across(places)
    most = max(high for one in shown for _, _, high in one.values.values())
    # A limit far above everything would press what was measured flat.
    near = [mark for mark in marks if mark.low <= 1.6 * most]
    most = max([most, *(mark.high for mark in near)])
    tick = round_step(most / TICKS) if most else 1.0
    top = tick * math.ceil(most / tick + 0.02)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [text(16, 22, f"{title}, {unit}", "start", 15, INK)]
    for number in range(round(top / tick) + 1):
        level = y(number * tick)
        parts.append(line([(LEFT, level), (WIDTH - RIGHT, level)], LINE, 1))
        parts.append(text(LEFT - 8, level + 4, f"{number * tick:,.6g}", "end", 11))
    last = -math.inf
    for step in places:
        if x[step] - last > 8 + 7 * len(str(step)):
            parts.append(text(x[step], HEIGHT - BOTTOM + 18, f"{step:,.6g}", "middle", 11))
            last = x[step]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, across, "middle", 12))
    if knee in x:
        parts.append(line([(x[knee], TOP - 6), (x[knee], HEIGHT - BOTTOM)], DIM, 1, "3 4"))
        parts.append(text(x[knee], TOP - 10, "knee", "middle", 11))
    for mark in near:
        parts += _mark(mark, x, y(mark.low), y(mark.high))
    at = float(LEFT)
    for number, one in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        heights = {step: tuple(map(y, values)) for step, values in one.values.items()}
        parts += _line(one, colour, x, heights, across)
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


def _across(places: Sequence[float]) -> dict[float, float]:
    """Return where each step is drawn; twice as many are as far away everywhere."""
    first, last = math.log2(places[0]), math.log2(places[-1])
    left, right = LEFT + 22, WIDTH - RIGHT - 22
    if first == last:
        return {places[0]: (left + right) / 2}
    scale = (right - left) / (last - first)
    return {step: left + scale * (math.log2(step) - first) for step in places}


def _line(
    series: Series,
    colour: str,
    x: Mapping[float, float],
    y: Mapping[float, tuple[float, ...]],
    across: str,
) -> list[str]:
    order = sorted(series.values)
    parts = [line([(x[step], y[step][0]) for step in order], colour, 2.2, series.dash)]
    for step in order:
        middle, low, high = series.values[step]
        at_middle, at_low, at_high = y[step]
        if high > low:
            parts.append(line([(x[step], at_low), (x[step], at_high)], colour, 1.4))
            for end in (at_low, at_high):
                parts.append(line([(x[step] - 4, end), (x[step] + 4, end)], colour, 1.4))
        told = f"{series.name} at {step:g} {across}: {middle:,.6g} ({low:,.6g} to {high:,.6g})"
        parts.append(dot((x[step], at_middle), colour, colour, told))
    return parts


def _mark(mark: Mark, x: Mapping[float, float], low: float, high: float) -> list[str]:
    """Return a level over the whole width, or a bar from low to high at its step."""
    if not mark.step:
        return [line([(LEFT, low), (WIDTH - RIGHT, low)], LIMIT, 1.5, "6 4")]
    if mark.step not in x:
        return []
    at = x[mark.step] + 9
    return [
        line([(at, low), (at, high)], LIMIT, 2.5),
        *(line([(at - 5, end), (at + 5, end)], LIMIT, 2.5) for end in (low, high)),
    ]
