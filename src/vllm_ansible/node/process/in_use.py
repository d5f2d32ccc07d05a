"""Which directories some process of this host uses."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from .. import launcher


def users_of(places: Collection[str]) -> dict[str, int]:
    """Return of each directory in use the number of a process that uses it.

    It names it in its command, has its programs, libraries or files mapped, or works in it.
    """
    users: dict[str, int] = {}
    for pid in launcher.process_table() if places else ():
        if pid == os.getpid():
            continue
        text = _text_of(pid)
        for place in places:
            # Not the beginning of a longer name.
            if any(f"{place}{end}" in text for end in ("/", "\0", "\n")):
                users.setdefault(place, pid)
    return users


def _text_of(pid: int) -> str:
    """Return command and mapped files of a process; what belongs to others may stay hidden."""
    text = ""
    for name in ("cmdline", "maps"):
        try:
            found = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
        except OSError:
            continue
        # squashfuse names the directory at which it mounts an image: that is no use of it.
        if name == "cmdline" and os.path.basename(found.partition("\0")[0]) == "squashfuse":
            continue
        text += found + "\n"
    try:
        return text + os.readlink(f"/proc/{pid}/cwd") + "/"
    except OSError:
        return text
