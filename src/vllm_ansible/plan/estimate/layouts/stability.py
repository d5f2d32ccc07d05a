"""Keeping a running layout: a measurement is noisy, and a restart costs minutes of service."""

from __future__ import annotations

# Bus bandwidth differs by this much, up or down, between runs of one healthy cluster.
NOISE = 0.20
# What the best layout gains of such noise at most over one that was the best before it: it is
# bound by the network and sees 1 + NOISE, the running one sees 1 - NOISE.
GAIN = (1 + NOISE) / (1 - NOISE)


def worth_a_restart(running: float, best: float) -> bool:
    """Tell whether a layout's gain is more than noise could make; both in the same unit."""
    return best > running * GAIN * (1 + 1e-9)
