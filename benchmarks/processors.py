"""How much of this machine's processors a measurement takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def busy_share() -> Callable[[], float]:
    """Begin to look; what is returned says which share worked since then, 0 to 1."""
    started, before = time.monotonic(), _busy_seconds()

    def share() -> float:
        passed = time.monotonic() - started
        return (_busy_seconds() - before) / passed / (os.cpu_count() or 1)

    return share


def _busy_seconds() -> float:
    first = Path("/proc/stat").read_text().partition("\n")[0].split()
    user, nice, system, _, _, interrupts, soft = map(int, first[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
