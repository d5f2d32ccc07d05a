"""Read a record while it is still being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .events import AnyEvent, RunStarted, parse
from .process import AnsibleRun
from .stop import Cancel

# How long an event may wait in the record before the caller sees it.
LOOK_SECONDS = 0.1


class Follower:
    """Return each line of a growing file once, and only when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole if line.strip()]


def follow(ansible: AnsibleRun, cancel: Cancel | None) -> Iterator[AnyEvent]:
    """Yield the events of a run until it is over, and interrupt it when it is cancelled."""
    record: Follower | None = None
    finished = False
    while not finished:
        finished = ansible.done.wait(LOOK_SECONDS)
        if cancel and cancel.is_set():
            ansible.interrupt()
        if record is None and (run_dir := ansible.run_dir()):
            record = Follower(run_dir / "events.jsonl")
        for line in record.lines() if record else ():
            if event := parse(line):
                if isinstance(event, RunStarted):
                    ansible.forget_variables()
                yield event
