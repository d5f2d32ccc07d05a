"""What one user gets against what a dollar gets, over offers and loads, as one SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from math import floor, log10

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.engine_set import engine_set
from vllm_ansible.plan.estimate.layouts.offers import SECONDS_PER_HOUR, Offer
from vllm_ansible.plan.estimate.layouts.picture import COLOURS, DIM, INK, LINE
from vllm_ansible.plan.estimate.layouts.request import Request

# Loads from one request up to this many, each twice the one before.
MOST_REQUESTS = 1024
WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 112, 250, 44, 60
TICKS = 6
NOTES = ("filled: no offer is better in both", "numbers: requests at once")


@frozen
class Point:
    """An offer at a load: tokens/s for one user, tokens for a dollar, and the layouts that run."""

    offer: str
    requests: int
    layout: str
    per_user: float
    per_dollar: float


def points(request: Request, offers: Sequence[Offer]) -> tuple[Point, ...]:
    """Return what each offer gives at each load, the best layout of each load; all can run."""
    return tuple(point for offer in offers for point in _of(request, offer))


def undominated(found: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other one beats in both, those for fast users last."""
    best: list[Point] = []
    for point in sorted(found, key=lambda one: (-one.per_user, -one.per_dollar)):
        if not best or point.per_dollar > best[-1].per_dollar:
            best.append(point)
    return tuple(reversed(best))


def draw(request: Request, found: Sequence[Point]) -> str:
    """Return the SVG: a line for each offer, the points that no other one beats filled."""
    most_x = 1.08 * max(point.per_user for point in found)
    most_y = 1.08 * max(point.per_dollar for point in found)
    title = (
        f"{request.model.name}, {request.input_tokens} tokens in and {request.output_tokens} out"
    )

    def place(point: Point) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * point.per_user / most_x
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * point.per_dollar / most_y

    parts = [_text(LEFT, 24, title, INK, 16, "start"), *_axes(most_x, most_y)]
    kept = set(undominated(found))
    for number, name in enumerate(dict.fromkeys(point.offer for point in found)):
        colour = COLOURS[number % len(COLOURS)]
        mine = [point for point in found if point.offer == name]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, mine))
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for point in mine:
            x, y = place(point)
            fill = colour if point in kept else "#fff"
            words = (
                f"{name}, {point.layout}: {point.requests} requests, "
                f"{point.per_user:,.0f} tokens/s a user, {point.per_dollar:,.0f} tokens a dollar"
            )
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}">'
                f"<title>{escape(words)}</title></circle>"
            )
            parts.append(_text(x + 8, y - 7, f"{point.requests}", DIM, 11, "start"))
        row = TOP + 20 * number
        parts.append(
            f'<rect x="{WIDTH - RIGHT + 16}" y="{row}" width="12" height="12" fill="{colour}"/>'
        )
        parts.append(_text(WIDTH - RIGHT + 34, row + 11, name, INK, 12.5, "start"))
    for number, note in enumerate(NOTES):
        parts.append(
            _text(WIDTH - RIGHT + 16, HEIGHT - BOTTOM - 18 + 18 * number, note, DIM, 11.5, "start")
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, Liberation Sans, sans-serif" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _of(request: Request, offer: Offer) -> Iterator[Point]:
    """Yield what one offer gives at each load; a load that leaves engines idle is left out."""
    load = 1
    while load <= MOST_REQUESTS:
        found = engine_set(replace(request, machines=offer.machines, concurrency=load))
        engines = sum(one.engines for one in found.members)
        rate = found.output_rate.middle
        if load >= engines:
            layout = " and ".join(one.answer.chosen.candidate.name for one in found.members)
            dollars = offer.dollars_per_hour / SECONDS_PER_HOUR
            yield Point(offer.name, load, layout, rate / load, rate / dollars)
        load *= 2


def _axes(most_x: float, most_y: float) -> Iterator[str]:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    for value in _ticks(most_y):
        y = HEIGHT - BOTTOM - height * value / most_y
        yield f'<path d="M{LEFT},{y:.1f} H{WIDTH - RIGHT}" stroke="{LINE}"/>'
        yield _text(LEFT - 10, y + 4, f"{value:,.10g}", DIM, 12, "end")
    for value in _ticks(most_x):
        x = LEFT + width * value / most_x
        yield f'<path d="M{x:.1f},{HEIGHT - BOTTOM} v5" stroke="{DIM}"/>'
        yield _text(x, HEIGHT - BOTTOM + 20, f"{value:,.10g}", DIM, 12, "middle")
    below = LEFT + width / 2
    yield _text(below, HEIGHT - 16, "output tokens/s of one user", INK, 13, "middle")
    middle = TOP + height / 2
    yield (
        f'<g transform="rotate(-90 16 {middle:g})">'
        f"{_text(16, middle, 'output tokens for a dollar', INK, 13, 'middle')}</g>"
    )


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 to what an axis shows at most, about as many as TICKS."""
    size = 10.0 ** floor(log10(most / TICKS))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= most / TICKS)
    return [step * number for number in range(int(most / step) + 1)]


def _text(x: float, y: float, words: str, fill: str, size: float, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size:g}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
