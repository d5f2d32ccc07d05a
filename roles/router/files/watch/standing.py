"""Whether a rank computes: a pure judgement of what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass

# So many refusals in a row; the first may be an accident.
REFUSALS = 2


@dataclass
class Standing:
    """What was seen of one rank; times are of one clock that never goes back."""

    # When the question that waits was asked, None where none waits.
    asked_at: float | None = None
    # The rank's own count of what it computes, and when it was last seen to grow.
    count: float | None = None
    grew_at: float | None = None
    # It answers, and keeps no such count.
    uncounted: bool = False
    refusals: int = 0
    down: str = ""
    # Something was proven, either way.
    known: bool = False

    def asked(self, now: float) -> None:
        """A question was sent."""
        self.asked_at, self.count, self.grew_at, self.uncounted = now, None, None, False

    def answered(self) -> None:
        """It was answered: nothing proves more."""
        self.asked_at, self.refusals, self.down, self.known = None, 0, "", True

    def refused(self, why: str) -> None:
        """It was refused, or the connection broke."""
        self.asked_at, self.refusals = None, self.refusals + 1
        if self.refusals >= REFUSALS:
            self.down, self.known = why, True

    def counted(self, now: float, count: float | None) -> None:
        """The rank has told its count while the question waits; None where it keeps none."""
        if count is None:
            self.uncounted = True
            return
        if self.count is not None and count > self.count:
            self.grew_at = now
        self.count = count

    def judge(self, now: float, patience: float) -> str:
        """Return why the rank is down, empty when it is up.

        A question that waits in a long queue proves nothing against a rank that still computes,
        which its count shows. One whose count nobody can see, but which tells so, is left alone.
        """
        if self.asked_at is not None and now - self.asked_at > patience:
            since = self.asked_at if self.grew_at is None else self.grew_at
            if now - since <= patience:
                self.down, self.known = "", True
            elif not self.uncounted:
                self.down, self.known = f"no token for {now - since:.1f} s", True
        return self.down
