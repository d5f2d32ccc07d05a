"""A price as people read it."""

from __future__ import annotations


def dollars(cents: int) -> str:
    """Return a price of an hour, given in US cents; 0 is one that nobody knows."""
    return f"${cents / 100:.2f}/h" if cents else "price unknown"
