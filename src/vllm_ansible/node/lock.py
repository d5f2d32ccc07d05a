"""One run at a time works on a cluster: who holds it is written on the cluster's head."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

Lock = dict[str, Any]


def read(path: Path) -> Lock | None:
    """Return the lock, or None when nobody holds it or what lies there is no lock."""
    try:
        lock = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return lock if isinstance(lock, dict) and "run" in lock else None


def verdict(held: Lock | None, run: str, dead_runs: list[str]) -> str:
    """Say whether `run` may take the lock: `free`, `mine`, `stale` or `held`.

    dead_runs are runs that the asking controller knows to be over, since it started them itself.
    Of a run on another controller nobody knows: a download may take hours, and silence proves
    nothing, so that lock is a person's to break.
    """
    if held is None:
        return "free"
    if held["run"] == run:
        return "mine"
    return "stale" if held["run"] in dead_runs else "held"


def write(path: Path, lock: Lock) -> None:
    """Put the lock in place whole, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=".lock-")
    with os.fdopen(handle, "w") as file:
        json.dump(lock, file)
    os.replace(name, str(path))


def take(path: Path, lock: Lock) -> bool:
    """Create the lock if none exists; False when somebody was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=".lock-")
    with os.fdopen(handle, "w") as file:
        json.dump(lock, file)
    try:
        # A link fails when the name exists, on NFS too: exactly one of two runs gets it.
        os.link(name, str(path))
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True
