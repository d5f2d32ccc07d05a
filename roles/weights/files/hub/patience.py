"""When a source is asked again, and when it is given up."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

TRANSIENT = (408, 429, 500, 502, 503, 504)
ATTEMPTS = 7  # in a row, without one new byte
FIRST_ATTEMPTS = 2  # at a source that never answered: a wrong address or proxy, not a bad moment
LONGEST_DELAY = 300.0  # seconds: the hub counts requests in windows of five minutes
FIRST_OWN_DELAY = 0.5  # seconds, where the server asks for none; doubled each time
LONGEST_OWN_DELAY = 30.0
TELL_SECONDS = 1.0


class Answers(Protocol):
    """What the errors of one source's client tell."""

    def status_of(self, error: Any) -> int:
        """Return the status of an answer, 0 where an error is none."""

    def headers_of(self, error: Any) -> Mapping[str, str]:
        """Return the headers of an answer, none where an error is none."""

    def transient(self, error: BaseException) -> bool:
        """Return whether the same request may well succeed later."""

    def ends_early(self, error: BaseException) -> bool:
        """Return whether an error says that there is no more of a file."""


class Patience:
    """Calls again what a busy source or a broken connection stopped; all threads wait together."""

    def __init__(
        self, attempts: int, answers: Answers, tell: Callable[[], None] = lambda: None
    ) -> None:
        """Call up to so many times in a row; tell is called where one fails, and while it waits."""
        self.attempts, self.answers, self.tell = attempts, answers, tell
        self.answered, self.until = False, 0.0
        self.repeats = 0  # of all calls together

    def wait(self) -> None:
        """Wait until the source may be asked."""
        while (pause := self.until - time.monotonic()) > 0:
            self.tell()
            time.sleep(min(pause, TELL_SECONDS))

    def asked_to_wait(self, by: str) -> str:
        """Return in words who asks to wait for how long, empty where nobody does."""
        pause = self.until - time.monotonic()
        return f"{by} asks to wait {pause:.0f} s" if pause > 0 else ""

    def __call__(self, call: Callable[[], Any], moved: Callable[[], int] = lambda: 0) -> Any:
        """Return what a call returns; raise what it raises so often in a row, nothing moving."""
        failures = 0
        while True:
            self.wait()
            before = moved()
            try:
                value = call()
            except Exception as error:
                self.answered = self.answered or self.answers.status_of(error) > 0
                failures = 1 if moved() > before else failures + 1
                enough = failures >= (self.attempts if self.answered else FIRST_ATTEMPTS)
                if enough or not self.answers.transient(error):
                    raise
                asked = asked_delay(self.answers.headers_of(error))
                self.repeats += 1
                self.tell()
            else:
                self.answered = True
                return value
            if asked is None:
                time.sleep(min(FIRST_OWN_DELAY * 2 ** (failures - 1), LONGEST_OWN_DELAY))
            else:
                self.until = max(self.until, time.monotonic() + min(asked, LONGEST_DELAY))


def asked_delay(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds a server wants to be left alone, None where it does not say."""
    wanted, delays = headers.get("retry-after", ""), []
    if wanted.strip().isdigit():
        delays.append(float(wanted))
    elif wanted:
        with suppress(ValueError, TypeError):
            delays.append(email.utils.parsedate_to_datetime(wanted).timestamp() - time.time())
    spent = re.search(r'"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)', headers.get("ratelimit", ""))
    if spent:
        delays.append(float(spent.group(1)))
    return max(0.0, *delays) if delays else None
