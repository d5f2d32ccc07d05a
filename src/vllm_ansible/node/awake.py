"""A clock that stands still while this program does: what it missed is nobody else's silence.

A machine that is moved to another host, a stopped program and a starved one all miss time. Standard
library only, Python 3.9.
"""

from __future__ import annotations

import threading
import time

TICK_SECONDS = 0.1
# More between two looks at the clock was missed.
MOST_SECONDS = 0.5


class Awake:
    """Counts the seconds in which this program ran, or could have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last, self._counted, self._missed = _clock(), 0.0, 0.0

    def start(self) -> None:
        """Begin to look at the clock all the time; the thread does not keep the program alive."""
        threading.Thread(target=self._tick, daemon=True).start()

    def now(self) -> float:
        """Return the seconds since this clock was made, without those that were missed."""
        with self._lock:
            now = _clock()
            # A machine that is restored from an image may have an earlier clock.
            passed, self._last = max(0.0, now - self._last), now
            self._counted += min(passed, MOST_SECONDS)
            self._missed += max(0.0, passed - MOST_SECONDS)
            return self._counted

    @property
    def missed(self) -> float:
        """Return the seconds that were missed so far, up to now: the thread may not have looked."""
        self.now()
        return self._missed

    def _tick(self) -> None:
        while True:
            self.now()
            time.sleep(TICK_SECONDS)


def _clock() -> float:
    # Goes on while the machine is suspended.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
