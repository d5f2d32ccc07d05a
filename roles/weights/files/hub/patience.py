"""When the hub is asked again, and when it is given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from answers import asked_delay, status_of, transient

ATTEMPTS = 7  # in a row, without one new byte
FIRST_ATTEMPTS = 2  # at a hub that never answered: a wrong address or proxy, not a bad moment
LONGEST_DELAY = 300.0  # seconds: the hub counts requests in windows of five minutes
FIRST_OWN_DELAY = 0.5  # seconds, where the server asks for none; doubled each time
LONGEST_OWN_DELAY = 30.0


class Patience:
    """Calls again what a busy hub or a broken connection stopped; all threads wait together."""

    def __init__(self, attempts: int) -> None:
        self.attempts, self.answered, self.until = attempts, False, 0.0

    def __call__(self, call: Callable[[], Any], moved: Callable[[], int] = lambda: 0) -> Any:
        """Return what a call returns; raise what it raises so often in a row, nothing moving."""
        failures = 0
        while True:
            time.sleep(max(0.0, self.until - time.monotonic()))
            before = moved()
            try:
                value = call()
            except Exception as caught:
                error: Any = caught
                self.answered = self.answered or status_of(error) > 0
                failures = 1 if moved() > before else failures + 1
                enough = failures >= (self.attempts if self.answered else FIRST_ATTEMPTS)
                if enough or not transient(error):
                    raise
                asked = asked_delay(error.response.headers) if status_of(error) else None
            else:
                self.answered = True
                return value
            if asked is None:
                time.sleep(min(FIRST_OWN_DELAY * 2 ** (failures - 1), LONGEST_OWN_DELAY))
            else:
                self.until = max(self.until, time.monotonic() + min(asked, LONGEST_DELAY))
