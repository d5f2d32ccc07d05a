"""The marks that figures are drawn of, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from vllm_ansible.plan.estimate.layouts.picture import DIM


def line(places: Sequence[tuple[float, float]], colour: str, width: float, dash: str = "") -> str:
    """Return a line through places, dashed or whole."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    drawn = f'stroke="{colour}" stroke-width="{width}"{dashed}'
    return f'<polyline points="{points}" fill="none" {drawn}/>'


def area(places: Sequence[tuple[float, float]], colour: str) -> str:
    """Return a field within places."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polygon points="{points}" fill="{colour}" fill-opacity="0.1"/>'


def dot(place: tuple[float, float], fill: str, edge: str, told: str) -> str:
    """Return a point that says what it is under the pointer."""
    return (
        f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="4.5" fill="{fill}" stroke="{edge}" '
        f'stroke-width="1.5"><title>{escape(told)}</title></circle>'
    )


def text(x: float, y: float, words: str, anchor: str, size: int, ink: str = DIM) -> str:
    """Return words."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{ink}">'
        f"{escape(words)}</text>"
    )


def round_step(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least so much."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= step)
