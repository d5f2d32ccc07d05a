"""Whether an engine computes: a pure judgement of what was seen of its server.

An answer is the proof, and so is a count of its own that moves: a question in a long queue proves
nothing against an engine that computes for others. One that has been slow before may be so again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

# An engine for which nobody asks is asked so often.
QUIET_SECONDS = 7.0
# Times the longest silence that ended well, and no more than so many seconds.
PATIENCE_FACTOR, MOST_PATIENCE_SECONDS = 2.0, 120.0
# An engine that compiles, or whose processes on processors work, is given this.
BUSY_SECONDS = 300.0
REFUSALS = 2


@dataclass
class Progress:
    """What was seen of one engine; times are of one clock that never goes back."""

    patience: float
    # It has answered since its server was last seen to start.
    serving: bool = False
    # Its own counts, None where it keeps none.
    counts: Optional[str] = None
    counted: bool = False
    running: float = 0.0
    moved_at: float = 0.0
    asked_at: Optional[float] = None
    refusals: int = 0
    refusal: str = ""
    asleep: bool = False
    slowest: float = 0.0
    # Something else holds it up: what it takes teaches nothing.
    excused: bool = False

    def restarted(self, now: float) -> None:
        """Forget what is known: another server has the port, or none."""
        self.serving, self.counts, self.counted = False, None, False
        self.refusals, self.refusal, self.moved_at, self.asleep = 0, "", now, False

    def looked(self, now: float, counts: Optional[str], running: float, asleep: bool) -> None:
        """The server has told its counts."""
        self.counted, self.running, self.asleep = counts is not None, running, asleep
        if counts is not None and counts != self.counts:
            if self.counts is not None:
                self._moved(now)
            self.counts = counts

    def asked(self, now: float) -> None:
        """A question was sent."""
        self.asked_at = now

    def answered(self, now: float) -> None:
        """It was answered."""
        self._moved(now)
        self.asked_at, self.refusals, self.refusal, self.serving = None, 0, "", True

    def refused(self, now: float, why: str) -> None:
        """The server has answered with an error of its own, or the connection broke."""
        self.asked_at, self.refusals, self.refusal = None, self.refusals + 1, why

    def _moved(self, now: float) -> None:
        began = self.moved_at if self.asked_at is None else max(self.moved_at, self.asked_at)
        waited = self.asked_at is not None or self.running
        if self.serving and waited and not self.asleep and not self.excused:
            self.slowest = max(self.slowest, now - began)
        self.moved_at, self.excused = now, False

    def wants_question(self, now: float) -> bool:
        """Tell whether it is time to ask."""
        return self.asked_at is None and not self.asleep and now - self.moved_at >= QUIET_SECONDS

    def silence(self, now: float, busy: bool) -> float:
        """Return for how long it has computed nothing though asked, 0 while that may be right.

        busy: a compiler runs, or its processes on processors take their time.
        """
        if not self.serving or self.asleep or self.asked_at is None or not self.counted:
            return 0.0
        silent = now - max(self.moved_at, self.asked_at)
        learned = min(MOST_PATIENCE_SECONDS, PATIENCE_FACTOR * self.slowest)
        patience = BUSY_SECONDS if busy else max(self.patience, learned)
        return silent if silent > patience else 0.0
