"""The directory that is to be mounted upon: what it is, and whether its server answers."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from .. import forked

# A hard mount whose server is gone holds whoever touches it.
SECONDS = 30.0


def look(path: str, mounted: bool) -> dict[str, Any]:
    """Return what a path is.

    real is the path without symbolic links, there whether it exists, entries what a mount upon it
    would hide, and away why the server of a mount that is there does not answer.
    """
    if mounted:
        return {"real": path, "there": True, "entries": [], "away": away(path, SECONDS)}
    entries: list[str] = []
    with suppress(FileNotFoundError, PermissionError):
        entries = sorted(os.listdir(path))
    return {
        "real": os.path.realpath(path),
        "there": os.path.isdir(path),
        "entries": entries,
        "away": "",
    }


def away(path: str, seconds: float) -> str:
    """Return why a file system does not answer; empty where it does."""

    # In a process of its own, which can be ended where this one would wait for ever.
    def ask(tell: forked.Tell) -> None:
        tell("stage", f"statvfs of {path}")
        os.statvfs(path)

    return str(forked.run_each([ask], seconds, OSError)[0].get("error", ""))
