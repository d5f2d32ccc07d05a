"""What the controller remembers of a cluster's allocation between two runs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.provision import files

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Notes:
    """The job that was seen last, and since when a request is under way whose answer is unknown."""

    job: str = ""
    restarts: int = 0
    nodes: list[str] = field(default_factory=list)
    asked_at: float = 0.0


class Kept:
    """The notes of one cluster in a file of its owner's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "slurm.json"

    def read(self) -> Notes:
        """Return the notes; empty where there are none."""
        try:
            return Notes(**json.loads(self._file.read_text()))
        except (OSError, ValueError, TypeError):
            return Notes()

    def write(self, notes: Notes) -> None:
        """Keep notes."""
        files.write(self._file, json.dumps(asdict(notes)))

    def forget(self) -> None:
        """Keep none: the allocation is given back."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def alone(
        self, report: Callable[[str], None], patience_seconds: float | None = None
    ) -> Iterator[None]:
        """Let one process at a time ask for an allocation: two would ask twice.

        After `patience_seconds`, if given, PlanError names the other process.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / "slurm.lock"
        until = None if patience_seconds is None else time.monotonic() + patience_seconds
        with path.open("a+") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    lock.seek(0)
                    number = lock.read().strip()
                if until is not None and time.monotonic() >= until:
                    raise PlanError(_hung(number, path, patience_seconds or 0))
                report(f"process {number or 'unknown'} asks Slurm for this cluster's nodes")
                time.sleep(LOOK_SECONDS)
            with suppress(OSError):
                lock.truncate(0)
                os.write(lock.fileno(), str(os.getpid()).encode())
            yield


def _hung(number: str, path: Path, seconds: float) -> Problem:
    end = f"kill -KILL {number}" if number.isdigit() else f"fuser -k {path}"
    who = f"process {number or 'unknown'}"
    return Problem(
        f"{who} asks Slurm for this cluster's nodes and has not stopped for {seconds:.0f} s; "
        "no job was cancelled",
        expected="no other process of this controller that asks Slurm for this cluster",
        found=f"{who} holds the lock",
        where=str(path),
        fix=f"wait for that run to end, or end it: `{end}`; then run the same command again",
    )
