"""Start programs that outlive the command, and stop exactly those."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import SEARCH_PATH, LabError


@dataclass
class ProcessRecord:
    """A process, known by its number and its time of start: a number alone is used again."""

    pid: int
    started: int


def status(pid: int) -> list[str]:
    """Return what the kernel says of a process after its name; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def running(process: ProcessRecord) -> bool:
    """Tell whether this very process is at work, not another that got its number."""
    found = status(process.pid)
    return bool(found) and found[0] not in "ZX" and int(found[19]) == process.started


def start(argv: Sequence[str], ready: Callable[[], bool], timeout: float) -> ProcessRecord:
    """Start a program in a session of its own and return once it is ready; else quote it."""
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(  # noqa: S603  # our own program, given as a list
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
            env={**os.environ, "PATH": SEARCH_PATH},
        )
        record = ProcessRecord(process.pid, int(status(process.pid)[19]))
        deadline = time.monotonic() + timeout
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                stop(record)
                words.seek(0)
                said = words.read().decode(errors="replace").strip()
                raise LabError(f"`{argv[0]}` did not get ready: {said[-300:] or 'it said nothing'}")
            time.sleep(0.05)  # what is waited for cannot tell us
        return record


def stop(process: ProcessRecord, patience: float = 5) -> None:
    """Ask a process to end, insist when it does not, and return when it is gone."""
    if running(process):
        os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while running(process):
        if time.monotonic() > deadline:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.02)  # not always our child, so there is nothing to wait on
