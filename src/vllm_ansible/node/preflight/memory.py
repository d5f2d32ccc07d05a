"""Memory of a host: what is free, what is shared, what is set aside, and who holds the rest."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..kernel_files import names, number, text
from . import ours

# The largest strangers are named: whoever frees memory begins there.
NAMED = 3


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Return total and available memory in bytes."""
    fields = {}
    for line in text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            fields[name] = int(rest.split()[0]) * 1024
    return {"total": fields.get("MemTotal", 0), "available": fields.get("MemAvailable", 0)}


def shared_memory(path: str = "/dev/shm") -> dict[str, int]:  # noqa: S108 where the C library puts it
    """Return size and free bytes of the file system behind shared memory; zeros without one."""
    try:
        found = os.statvfs(path)
    except OSError:
        return {"total": 0, "free": 0}
    return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


def huge_pages(root: Path = Path("/")) -> dict[str, dict[str, int]]:
    """Return how many pages of each size, in KiB, are set aside and free."""
    top = root / "sys/kernel/mm/hugepages"
    found = {}
    for name in names(top):
        size = name[len("hugepages-") : -len("kB")]
        found[size] = {
            "total": number(top / name / "nr_hugepages") or 0,
            "free": number(top / name / "free_hugepages") or 0,
        }
    return found


def strangers(known: Collection[int], root: Path = Path("/")) -> dict[str, Any]:
    """Return the memory, in bytes, that processes hold which are not ours, and the largest.

    Pages shared with files or other processes do not count, so that nothing counts twice.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    held = {}
    for name in names(root / "proc"):
        if name.isdigit() and int(name) not in known:
            fields = text(root / "proc" / name / "statm").split()
            if len(fields) > 2:
                held[int(name)] = (int(fields[1]) - int(fields[2])) * page
    largest = sorted(held, key=lambda pid: -held[pid])[:NAMED]
    return {
        "bytes": sum(held.values()),
        "largest": [{**ours.describe(pid), "bytes": held[pid]} for pid in largest],
    }


def look(known: Collection[int]) -> dict[str, Any]:
    """Return all of it; known are the processes of the cluster."""
    return {
        **meminfo(),
        "shared": shared_memory(),
        "huge_pages": huge_pages(),
        "strangers": strangers(known),
    }
