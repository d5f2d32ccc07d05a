"""The rates between hosts as one picture: a square for each pair, red where it is slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, LABEL, HEAD = 1000, 130, 26
LARGEST, SMALLEST = 56, 9
READABLE = 34
INK, DIM, EMPTY = "#1c2430", "#667085", "#f6f7f9"
# From slow to as fast as the fastest, readable in black and white as well.
STEPS = ((0.55, "#b42318"), (0.8, "#e0a63a"), (0.9, "#bcd8c6"), (9.0, "#4f9d69"))


def heat_map(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG of the rates in GB/s, one direction; empty without pairs.

    pairs: first, second and gbs of each, as library/collective_check.py documents them. A search
    that stopped early leaves squares empty.
    """
    rates = {frozenset((str(one["first"]), str(one["second"]))): float(one["gbs"]) for one in pairs}
    if not rates:
        return ""
    hosts = sorted({host for pair in rates for host in pair})
    side = max(SMALLEST, min(LARGEST, (WIDTH - LABEL) // len(hosts)))
    best = max(rates.values()) or 1.0
    parts = []
    for row, host in enumerate(hosts):
        top = HEAD + row * side
        parts.append(_text(LABEL - 8, top + side / 2 + 4, host, "end", min(12, side)))
        if side >= READABLE:
            parts.append(_text(LABEL + row * side + side / 2, HEAD - 9, host[-8:], "middle", 10))
        for column, other in enumerate(hosts):
            if host != other:
                rate = rates.get(frozenset((host, other)))
                parts.append(_square(LABEL + column * side, top, side, host, other, rate, best))
    height = HEAD + len(hosts) * side + 4
    width = LABEL + len(hosts) * side + 4
    return (
        f'<svg viewBox="0 0 {max(width, 400)} {height}" role="img" style="max-width:{width}px" '
        f'aria-label="rates between {len(hosts)} hosts">{"".join(parts)}</svg>'
    )


def _square(
    left: float, top: float, side: float, host: str, other: str, rate: float | None, best: float
) -> str:
    told = "not measured" if rate is None else f"{rate:.4g} GB/s"
    colour = EMPTY
    if rate is not None:
        colour = next(step for limit, step in STEPS if rate / best < limit)
    square = (
        f'<rect x="{left + 1}" y="{top + 1}" width="{side - 2}" height="{side - 2}" rx="2" '
        f'fill="{colour}"><title>{escape(host)} - {escape(other)}: {told}</title></rect>'
    )
    if rate is None or side < READABLE:
        return square
    ink = "#fff" if colour == STEPS[0][1] else INK
    figure = f"{rate:.1f}" if best >= 1 else f"{rate * 1000:.1f}"
    return square + _text(left + side / 2, top + side / 2 + 4, figure, "middle", 11, ink)


def _text(x: float, y: float, words: str, anchor: str, size: int, ink: str = DIM) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{ink}">'
        f"{escape(words)}</text>"
    )
