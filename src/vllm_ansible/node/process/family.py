"""Find every process a record stands for, however it forked and whatever it calls itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from .. import launcher

POLL_SECONDS = 0.02


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition that offers nothing to block on, and tell whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def lives(state: Mapping[str, Any], *roles: str) -> bool:
    """Tell whether the recorded processes with these roles all live."""
    return (
        bool(state)
        and state["boot_id"] == launcher.boot_id()
        and all(launcher.alive(state[role]["pid"], state[role]["start_time"]) for role in roles)
    )


def marked(marker: str, table: Mapping[int, launcher.Stat]) -> set[int]:
    """Return the processes that carry this marker in their environment."""
    wanted = f"{launcher.MARKER}={marker}".encode()
    found = set()
    for pid in table:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as handle:
            if wanted in handle.read().split(b"\0"):
                found.add(pid)
    return found


def family(marker: str, state: Mapping[str, Any]) -> set[int]:
    """Return every living process of a record: by its numbers, session, marker and descent."""
    table = launcher.process_table()
    found = marked(marker, table)
    if state and state["boot_id"] == launcher.boot_id():
        found |= {state[role]["pid"] for role in ("launcher", "process") if lives(state, role)}
        # The process leads its own session, and a session's number is not given away while it has
        # members; the start time guards against a number that was free in between.
        leader, since = state["process"]["pid"], state["process"]["start_time"] or 0
        found |= {
            pid for pid, one in table.items() if one.session == leader and one.start_time >= since
        }
    return found | launcher.descendants(found, table)


def kill_family(marker: str, state: Mapping[str, Any], seconds: float) -> set[int]:
    """Kill what is left of a record, wait, and return what survived."""
    left: set[int] = set()

    def gone() -> bool:
        nonlocal left
        left = family(marker, state)
        launcher.kill_all(left)
        return not left

    until(gone, seconds)
    return left
