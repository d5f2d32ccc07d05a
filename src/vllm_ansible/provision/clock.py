"""One clock for all who ask a provider for something: inventory plugin, modules and verbs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Others hold the file for a moment, unless they are suspended in it: then turns are taken without.
_HELD_SECONDS = 5.0
_TRY_SECONDS = 0.05
# A turn further ahead than any queue of ours: the machine's clock was set back since.
_FARTHEST_SECONDS = 3600.0


class Clock:
    """Turns for requests, at a distance that is kept over processes and runs.

    `intervals` gives the seconds between two turns of a kind. The file holds the time of the next
    free turn of each kind, in seconds since the epoch, and is readable by its owner alone.
    """

    def __init__(
        self,
        file: Path,
        intervals: Mapping[str, float],
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file = file
        self._intervals = dict(intervals)
        self._now = now
        self._sleep = sleep
        # What could not be written: then turns are kept by this process alone.
        self._unwritten: dict[str, float] = {}

    def turn(self, *kinds: str) -> float:
        """Wait for a turn that is free for all these kinds; return the seconds waited.

        The turn is taken before the wait, so that others queue behind it instead of beside it.
        """
        with self._free() as free:
            now = self._now()
            at = max([now, *(free.get(kind, 0.0) for kind in kinds)])
            for kind in kinds:
                free[kind] = at + self._intervals[kind]
        if at > now:
            self._sleep(at - now)
        return at - now

    def hold(self, kind: str, seconds: float) -> None:
        """Give no turn of a kind for so many seconds: the provider said that it was too many."""
        with self._free() as free:
            free[kind] = max(free.get(kind, 0.0), self._now() + seconds)

    @contextmanager
    def _free(self) -> Iterator[dict[str, float]]:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield self._unwritten
            return
        with os.fdopen(descriptor, "r+b", buffering=0) as handle:
            _hold(handle.fileno())
            free = self._read(handle.read().decode(errors="replace"))
            for kind, at in self._unwritten.items():
                free[kind] = max(free.get(kind, 0.0), at)
            yield free
            text = json.dumps(free).encode()
            try:
                # Over what stands there, which takes no new room.
                handle.seek(0)
                whole = handle.write(text) == len(text)
                handle.truncate(len(text))
            except OSError:
                whole = False
            self._unwritten = {} if whole else free

    def _read(self, text: str) -> dict[str, float]:
        latest = self._now() + _FARTHEST_SECONDS
        try:
            found = {str(kind): float(at) for kind, at in json.loads(text or "{}").items()}
        except (ValueError, AttributeError, TypeError):
            # Half written when a machine went down: the worst that follows is a 429.
            return {}
        return {kind: at for kind, at in found.items() if at <= latest}


def _hold(descriptor: int) -> None:
    """Lock the file, for as long as anybody waits who may have machines to end."""
    until = time.monotonic() + _HELD_SECONDS
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_SECONDS)
        else:
            return
