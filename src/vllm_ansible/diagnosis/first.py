"""Find the line where a failure over many logs began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from . import lines
from .match import FAILURES, Signature, match

# Within this time of the first failure, a line that is known says more than one that is not:
# libraries print the reason before, or just after, the exception that it ends in.
_SAME_FAILURE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The line that explains a failure, where it was written, and what is known about it."""

    rank: str
    line: str
    number: int
    signature: Signature | None
    writer: str | None = None
    address: str | None = None

    @property
    def where(self) -> str:
        """Who wrote the line, as a person would say it."""
        process = f" ({self.writer})" if self.writer else ""
        # The head's log also carries what other hosts wrote; only their address is known there.
        host = f" from {self.address}" if self.address else ""
        return f"{self.rank}{host}{process}, line {self.number} of its log"


@dataclass(frozen=True, slots=True)
class _Candidate:
    tier: int
    seconds: float
    order: int
    finding: Finding


def first_failure(logs: Mapping[str, str]) -> Finding | None:
    """Return the first line over all logs that says what failed, or None where none does.

    Root causes go before what merely follows from one. Logs of different hosts are compared by
    the time their lines carry; a line without a time has that of the line before it. Lines of
    logs without any time come last, for nobody can tell when they were written.
    """
    candidates = [
        candidate
        for order, (rank, text) in enumerate(logs.items())
        for candidate in _candidates(rank, text, order)
    ]
    if not candidates:
        return None
    first = min(candidates, key=lambda one: (one.tier, one.seconds, one.order, one.finding.number))
    if first.finding.signature:
        return first.finding
    known = [
        one
        for one in candidates
        if one.tier == first.tier
        and one.finding.signature
        and one.seconds <= first.seconds + _SAME_FAILURE_SECONDS
    ]
    return min(known, key=lambda one: (one.seconds, one.order)).finding if known else first.finding


def _candidates(rank: str, text: str, order: int) -> list[_Candidate]:
    found: list[_Candidate] = []
    seconds = float("inf")
    for number, raw in enumerate(text.splitlines(), start=1):
        line = lines.read(raw)
        if line.moment:
            seconds = _seconds(line.moment)
        if line.is_noise:
            continue
        signature = match(line.text, FAILURES)
        if not signature and not line.is_failure:
            continue
        # What is known is a cause, even in words that usually follow from another one.
        follows = line.is_follow_up and not signature
        finding = Finding(rank, line.text.strip(), number, signature, line.writer, line.address)
        found.append(_Candidate(1 if follows else 0, seconds, order, finding))
    return found


def _seconds(moment: lines.Moment) -> float:
    """Place a moment on a line of seconds; a year that ends between two lines is not seen."""
    month, day, hour, minute, second, millisecond = moment
    try:
        # Any leap year will do: only differences matter.
        start = datetime(2024, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return float("inf")
    return start.timestamp() + millisecond / 1000
