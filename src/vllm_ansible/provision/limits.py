"""How long machines may be rented, and what they may cost in all: pure arithmetic over a ledger."""

from __future__ import annotations

from collections.abc import Iterator

from .ledger import HOUR, Ledger
from .provider import Settings


def spent(ledger: Ledger, settings: Settings, now: float) -> str:
    """Return the limit that has been reached, as a sentence; nothing while there is none."""
    since, cents = ledger.since(), ledger.cents(now)
    limit = settings.max_seconds
    if limit is not None and since is not None and now - since >= limit:
        hours = (now - since) / HOUR
        return f"machines have been rented for {hours:.1f} h, max_hours is {limit / HOUR:g}"
    if settings.max_cents is not None and cents >= settings.max_cents:
        return f"machines have cost ${cents / 100:.2f}, max_cost is ${settings.max_cents / 100:.2f}"
    return ""


def seconds_left(ledger: Ledger, settings: Settings, now: float) -> float | None:
    """Return how long the machines that are rented now may stay; None where nothing limits it."""
    return min(_seconds_left(ledger, settings, now), default=None)


def _seconds_left(ledger: Ledger, settings: Settings, now: float) -> Iterator[float]:
    since, price = ledger.since(), ledger.cents_per_hour()
    if settings.max_seconds is not None and since is not None:
        yield max(since + settings.max_seconds - now, 0.0)
    if settings.max_cents is not None and price:
        yield max(settings.max_cents - ledger.cents(now), 0.0) / price * HOUR
