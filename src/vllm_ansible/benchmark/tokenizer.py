"""What the archive of a tokenizer may hold that comes from an engine's host."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path
from typing import Any


def refused(path: str, most: int, host: str) -> list[dict[str, Any]]:
    """Return what an archive holds besides plain files and directories of `most` bytes in all.

    The engine's user has packed it, and root unpacks it on the host of the group `load`.
    """
    try:
        with tarfile.open(Path(path)) as archive:
            members = archive.getmembers()
    except tarfile.TarError as error:
        return [_row("an archive", False, str(error), host)]
    odd = [one.name for one in members if not _is_plain(one)]
    size = sum(one.size for one in members)
    rows = [
        _row("plain files and directories without special bits", not odd, ", ".join(odd), host),
        _row(f"at most {most} bytes", size <= most, f"{size} bytes", host),
    ]
    return [one for one in rows if not one["ok"]]


def _is_plain(member: tarfile.TarInfo) -> bool:
    special = member.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX)
    return (member.isreg() or member.isdir()) and not special


def _row(expected: str, ok: bool, found: str, host: str) -> dict[str, Any]:
    return {
        "what": "the archive of the tokenizer",
        "ok": ok,
        "expected": expected,
        "found": found,
        "where": host,
        "fix": "look at what the model's directory holds and at who writes there; it goes to no "
        "other host",
    }
