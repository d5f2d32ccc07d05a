"""What a cluster's machines have cost: written down as they are seen, since nobody else tells.

Providers list what there is and not what there was. A machine is counted from its accepted launch,
which its tag holds, until the first list that shows it ending or no longer shows it. That is up to
one look too much, and too little by what nobody looked at between two runs; it is no invoice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from . import files
from .fleet import BESIDE, GONE, Machine

HOUR = 3600.0
# After the name of the provider.
FILE = "ledger.json"


@dataclass
class Entry:
    """One machine: US cents an hour, times in seconds since the epoch."""

    slot: int
    type: str
    cents_per_hour: int
    since: float
    until: float | None = None
    # Rented from here, as was known when it was seen: by the state/ it names, or by its owner.
    ours: bool = False

    def cents(self, now: float) -> float:
        """Return what it has cost by now."""
        return self.cents_per_hour * max((self.until or now) - self.since, 0.0) / HOUR


class Ledger:
    """The machines that a cluster has and had since its last end, in a file on the controller."""

    def __init__(self, file: Path) -> None:
        self._file = file
        # What could not be written, while it cannot: the disk may be full.
        self._unwritten: dict[str, Entry] = {}

    def see(
        self,
        machines: Collection[Machine],
        now: float,
        ours: Callable[[Machine], bool] = lambda _: False,
    ) -> None:
        """Write down what is listed at this time, and which of it is ours: that stays so."""
        entries = self.entries()
        living = {one.id: one for one in machines if one.status not in GONE}
        for identity, entry in entries.items():
            if identity not in living and entry.until is None:
                entry.until = now
        for identity, one in living.items():
            since = one.since or now
            entry = Entry(one.slot, one.type, one.cents_per_hour, since)
            # One list may have been without it: it is paid for all the same.
            kept = entries.setdefault(identity, entry)
            kept.until, kept.ours = None, kept.ours or ours(one)
        self._write(entries)

    def cents(self, now: float) -> float:
        """Return what all of them have cost by now."""
        return sum(entry.cents(now) for entry in self.entries().values())

    def cents_per_hour(self) -> int:
        """Return what an hour of those that are still rented costs."""
        return sum(one.cents_per_hour for one in self.entries().values() if one.until is None)

    def since(self) -> float | None:
        """Return when the first of them was launched; None where there is none.

        One beside the cluster that has ended may be of days before.
        """
        found = self.entries().values()
        counted = (one.since for one in found if one.until is None or one.slot not in BESIDE)
        return min(counted, default=None)

    def begin(self) -> None:
        """Begin anew with a cluster's first machine; what was spent for it before is of it."""
        if any(one.slot not in BESIDE for one in self.entries().values()):
            self.close()

    def close(self) -> None:
        """Begin anew with the next machine: all are gone, and what they cost was told."""
        self._unwritten = {}
        self._file.unlink(missing_ok=True)

    def entries(self) -> dict[str, Entry]:
        """Return all machines by id."""
        try:
            content = json.loads(self._file.read_text())
            written = {str(identity): Entry(**entry) for identity, entry in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            # Lost or damaged: what lives is written down anew, with its tag's time.
            written = {}
        return written | self._unwritten

    def _write(self, entries: dict[str, Entry]) -> None:
        content = {identity: asdict(entry) for identity, entry in entries.items()}
        try:
            files.write(self._file, json.dumps(content, indent=1, sort_keys=True))
            self._unwritten = {}
        except OSError:
            # Known to this process until there is room again: limits are judged by it.
            self._unwritten = entries
