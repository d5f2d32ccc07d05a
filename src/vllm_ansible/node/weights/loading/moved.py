"""Tell a slow load from one that hangs: what processes that map a model's files have read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Optional

from ... import launcher
from ...build_command import bytes_of

# What a process does beside loading reads less than one such step in minutes.
STEP = 1 << 24
# Each page that a process waits for brings at least its own.
FAULT_BYTES = os.sysconf("SC_PAGE_SIZE")
# Field 12 of /proc/PID/stat, counted behind the name: page faults that had to wait for a read.
MAJOR_FAULTS = 9


def steps(place: str, ours: Callable[[int], bool]) -> Optional[int]:
    """Return how many steps our processes that map files below a directory have read in all.

    None where none of them maps one. Not of our other processes: those of Ray read what the system
    tells of all processes, again and again, whether anything moves or not. Nor of others that map
    the same model: what they read says nothing of this load.
    """
    readers = [pid for pid in launcher.process_table() if ours(pid) and _maps(pid, place)]
    if not readers:
        return None
    read = sum(max(bytes_of(pid, "rchar"), bytes_of(pid, "read_bytes")) for pid in readers)
    return (read + FAULT_BYTES * sum(map(_faults, readers))) // STEP


def _maps(pid: int, place: str) -> bool:
    wanted = f" {place.rstrip('/')}/"
    with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as text:
        return any(wanted in line for line in text)
    return False


def _faults(pid: int) -> int:
    with (
        suppress(OSError, IndexError),
        open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text,
    ):
        return int(text.read().rpartition(")")[2].split()[MAJOR_FAULTS])
    return 0
