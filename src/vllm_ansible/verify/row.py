"""One judgement of the stage verify, as gates, reports and metrics read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

PASS, WARN, FAIL, ACCEPTED, SKIPPED = "pass", "warn", "fail", "accepted", "skipped"


@dataclass(frozen=True)
class Row:
    """What was judged: a name that `verify_accept` takes, and where; both sides and what to do.

    cause: what it most likely is, where a failure can tell.
    """

    check: str
    where: str
    verdict: str
    what: str
    expected: str = ""
    found: str = ""
    fix: str = ""
    cause: str = ""

    def told(self) -> dict[str, Any]:
        """Return the row as evidence holds it."""
        return asdict(self)

    def measurement(self) -> dict[str, Any]:
        """Return the row as the action gate takes it."""
        return {
            "what": self.what,
            "ok": self.verdict != FAIL,
            **{name: getattr(self, name) for name in ("expected", "found", "where", "fix")},
        }


def with_accepted(rows: Iterable[Row], accepted: Sequence[str]) -> list[Row]:
    """Return the rows, those that fail and were accepted by name as such.

    accepted: `check`, or `check@where` for one place alone.
    """
    names = set(accepted)
    return [
        replace(row, verdict=ACCEPTED)
        if row.verdict == FAIL and names & {row.check, f"{row.check}@{row.where}"}
        else row
        for row in rows
    ]


def warnings(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each row that a person should see though it lets pass."""
    return [
        f"{row.where}: {row.what}: {row.found}; expected {row.expected} ({row.verdict})"
        + (f"; likely cause: {row.cause}" if row.cause else "")
        for row in rows
        if row.verdict in (WARN, ACCEPTED)
    ]


def failure(rows: Iterable[Row], first: Sequence[str] = ()) -> dict[str, Any]:
    """Return the result of a gate of which rows fail; nothing where none does.

    first: the checks that say most of a place, which are told before others.
    """
    missed = [row for row in rows if row.verdict == FAIL]
    if not missed:
        return {}
    told = next((row for row in missed if row.check in first), missed[0])
    others = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
    return {
        "failed": True,
        "msg": f"{told.where}: check failed: {told.what}{others}",
        **{name: getattr(told, name) for name in ("expected", "found", "where", "fix")},
        **({"cause": told.cause} if told.cause else {}),
        "missed": [row.measurement() for row in missed],
    }
