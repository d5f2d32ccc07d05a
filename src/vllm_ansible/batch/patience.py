"""When to send again, and when there is no more hope."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


class Patience:
    """What all requests of a run share: nobody sends before `hold` is over.

    seconds: how long a run goes on without a sign of life from the server.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._heard = clock()
        self._until = self._heard

    def heard(self) -> None:
        """Note a sign of life: an answer, or a part of one."""
        self._heard = self._clock()

    def hold(self, seconds: float) -> None:
        """Let nobody send for this long."""
        self._until = max(self._until, self._clock() + seconds)

    def left(self) -> float:
        """Return for how long nobody may send."""
        return max(0.0, self._until - self._clock())

    def silence(self) -> float:
        """Return the seconds since the last sign of life."""
        return self._clock() - self._heard

    def over(self) -> bool:
        """Tell whether the run is to end."""
        return self.silence() > self.seconds


def backoff(failures: int, asked: float | None, chance: Callable[[], float]) -> float:
    """Return the seconds before the next try: twice as long each time, or what the server asked.

    failures: from 1. chance: a number from 0 to 1, so that not all come back at once.
    """
    longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
    own = longest * (0.5 + chance() / 2)
    return max(own, asked or 0.0)


def retry_after(text: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a header Retry-After asks for: a number, or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(int(text)))
    except OverflowError:
        return math.inf
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())


def chance() -> float:
    """Return a number from 0 to 1."""
    return random.random()  # noqa: S311 - spreads requests, guards nothing
