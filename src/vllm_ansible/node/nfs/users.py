"""Which processes keep a mount from being taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .. import launcher


def users_of(path: str) -> list[str]:
    """Return the processes that use a mount, as 'number command'.

    They work in it, have a file of it open or mapped, or run a program of it. Root sees all.
    """
    inside = (path, f"{path.rstrip('/')}/")
    found = []
    for pid in sorted(launcher.process_table()):
        if any(one == path or one.startswith(inside[1]) for one in places_of(pid)):
            found.append(f"{pid} {command_of(pid)}")
    return found


def places_of(pid: int) -> Iterator[str]:
    """Yield the paths that a process works in, has open or has mapped."""
    root = f"/proc/{pid}"
    try:
        numbers = os.listdir(f"{root}/fd")
    except OSError:
        numbers = []
    # The link's text is asked for, never what it leads to: a server may be away.
    for name in ("cwd", "root", "exe", *(f"fd/{number}" for number in numbers)):
        try:
            yield os.readlink(f"{root}/{name}")
        except OSError:
            continue
    try:
        maps = Path(f"{root}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in maps.splitlines():
        yield line[line.find("/") :] if "/" in line else ""


def command_of(pid: int) -> str:
    """Return a process's command, cut to what tells who it is."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return " ".join(words).strip()[:80] or "?"
