"""What the fleets of all providers share: the note of a launch, and ends that no list shows yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from . import files
from .fleet import ENDED, ENDING, ENDING_SECONDS, Machine, Pending


class RentedFleet:
    """Machines as they are listed, and a launch from before it is sent until a list shows it.

    `note` is the file that holds the launch; `see` is told of every list; `now` is in seconds since
    the epoch.
    """

    def __init__(
        self, note: Path, now: Callable[[], float], see: Callable[[Sequence[Machine]], None]
    ) -> None:
        self._note, self._now, self._see = note, now, see
        self._asked_to_end: dict[str, float] = {}

    def shown(self, listed: Sequence[Machine]) -> list[Machine]:
        """Return listed machines, those as ending whose end was accepted a moment ago."""
        late = self._now() - ENDING_SECONDS
        ending = {one for one, at in self._asked_to_end.items() if at > late}
        found = [
            replace(one, status=ENDING) if one.id in ending and one.status != ENDED else one
            for one in listed
        ]
        self._see(found)
        return found

    @property
    def pending(self) -> Pending | None:
        """The launch that is not listed yet, by this run or one before it."""
        try:
            return Pending(**json.loads(self._note.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _keep(self, pending: Pending) -> None:
        files.write(self._note, json.dumps(asdict(pending)))

    def _keep_on(self, pending: Pending) -> None:
        """Say more in a note that stands, where there is room: what was launched exists."""
        with suppress(OSError):
            self._keep(pending)

    def forget(self) -> None:
        """Remove the note."""
        with suppress(OSError):
            self._note.unlink(missing_ok=True)
