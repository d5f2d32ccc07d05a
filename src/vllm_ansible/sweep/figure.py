"""Tokens per second over max_num_seqs as one SVG: a line for each max_num_batched_tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vllm_ansible.plan.estimate.layouts.picture import COLOURS, DIM, INK, LINE

from .drawing import area, dot, line, round_step, text
from .table import predicted_for

Points = Sequence[Mapping[str, Any]]
WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 76, 232, 44, 60
FAILED = "#b42318"
TICKS = 6


def figure(title: str, points: Points) -> str:
    """Return the figure: measured lines whole, predictions dashed in a band, failures crosses."""
    good = [point for point in points if point["ok"]]
    axis = _Axis(points)
    parts = [text(LEFT, 24, title, "start", 16, INK), *axis.drawn()]
    for number, (name, series) in enumerate(_series(good)):
        colour = COLOURS[number % len(COLOURS)]
        parts += _line(axis, series, colour)
        parts += _legend(number, name, colour)
    parts += [_cross(axis, point) for point in points if not point["ok"]]
    parts += _keys(points, len(_series(good)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, Liberation Sans, sans-serif" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


class _Axis:
    """Where a number of sequences and a rate are drawn."""

    def __init__(self, points: Points) -> None:
        self.places = sorted({int(point["max_num_seqs"]) for point in points})
        self._most_x = max(self.places) * 1.05
        rates = [_rate(point) for point in points if point["ok"]]
        rates += [rate for point in points for rate in point.get("predicted") or ()]
        self._step = round_step(max(rates, default=1.0) / TICKS)
        self._most_y = self._step * (math.floor(max(rates, default=1.0) / self._step) + 1)

    def x(self, sequences: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * sequences / self._most_x

    def y(self, rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / self._most_y

    def drawn(self) -> list[str]:
        parts = []
        for number in range(round(self._most_y / self._step) + 1):
            rate = number * self._step
            y = self.y(rate)
            parts.append(line([(LEFT, y), (WIDTH - RIGHT, y)], LINE, 1))
            parts.append(text(LEFT - 10, y + 4, f"{rate:,.10g}", "end", 12))
        last = -math.inf
        for place in self.places:
            x = self.x(place)
            parts.append(line([(x, HEIGHT - BOTTOM), (x, HEIGHT - BOTTOM + 5)], DIM, 1))
            # Labels that would lie on one another are left out.
            if x - last > 9 + 7 * len(str(place)):
                parts.append(text(x, HEIGHT - BOTTOM + 20, f"{place:,}", "middle", 12))
                last = x
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "max_num_seqs", "middle", 13))
        parts.append(
            f'<g transform="rotate(-90 18 {middle:g})">'
            + text(18, middle, "output tokens/s", "middle", 13)
            + "</g>"
        )
        return parts


def _series(points: Points) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the lines: by batched tokens, or one where each point has its own."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for point in points:
        found.setdefault(int(point["max_num_batched_tokens"]), []).append(point)
    if len(found) > 1 and all(len(one) == 1 for one in found.values()):
        one = sorted(points, key=lambda point: int(point["max_num_seqs"]))
        return [("each its own batched tokens", one)]
    return [
        (f"{tokens:,} batched tokens", sorted(one, key=lambda point: int(point["max_num_seqs"])))
        for tokens, one in sorted(found.items())
    ]


def _line(axis: _Axis, series: Points, colour: str) -> list[str]:
    seen = [(axis.x(point["max_num_seqs"]), axis.y(_rate(point))) for point in series]
    bands = [
        (axis.x(one["max_num_seqs"]), one["predicted"]) for one in series if one.get("predicted")
    ]
    expected = [(x, axis.y(middle)) for x, (_, middle, _) in bands]
    parts = []
    if len(bands) > 1:
        edge = [(x, axis.y(high)) for x, (_, _, high) in bands]
        edge += [(x, axis.y(low)) for x, (low, _, _) in reversed(bands)]
        parts += [area(edge, colour), line(expected, colour, 1.5, "6 5")]
    parts += [dot(place, "#fff", colour, "predicted") for place in expected]
    parts.append(line(seen, colour, 2.5))
    for place, point in zip(seen, series, strict=True):
        told = (
            f"{point['max_num_seqs']} x {point['max_num_batched_tokens']}: "
            f"{_rate(point):,.10g} tokens/s"
        )
        parts.append(dot(place, colour, colour, told))
    return parts


def _legend(number: int, name: str, colour: str) -> list[str]:
    x, y = WIDTH - RIGHT + 16, TOP + 14 + 22 * number
    return [
        line([(x, y - 4), (x + 22, y - 4)], colour, 2.5),
        text(x + 29, y, name, "start", 12, INK),
    ]


def _keys(points: Points, lines: int) -> list[str]:
    """Return what the marks mean, of those that are drawn."""
    x, y = WIDTH - RIGHT + 16, TOP + 26 + 22 * lines
    parts = []
    if any(point["ok"] and point.get("predicted") for point in points):
        parts += [line([(x, y - 4), (x + 22, y - 4)], DIM, 1.5, "6 5")]
        parts += [text(x + 29, y, "predicted", "start", 12)]
        y += 22
        if words := predicted_for(points):
            parts.append(text(x + 29, y - 6, words, "start", 11))
            y += 16
    if any(not point["ok"] for point in points):
        parts += [_cross_at(x + 11, y - 4, "failed"), text(x + 29, y, "failed", "start", 12)]
    return parts


def _cross(axis: _Axis, point: Mapping[str, Any]) -> str:
    told = f"{point['max_num_seqs']} x {point['max_num_batched_tokens']} failed"
    return _cross_at(axis.x(point["max_num_seqs"]), axis.y(0), told)


def _cross_at(x: float, y: float, told: str) -> str:
    return (
        f'<path d="M{x - 5:g} {y - 5:g}l10 10m-10 0l10 -10" stroke="{FAILED}" stroke-width="2.5">'
        f"<title>{escape(told)}</title></path>"
    )


def _rate(point: Mapping[str, Any]) -> float:
    return float(point["figures"]["output_tokens_per_second"])
