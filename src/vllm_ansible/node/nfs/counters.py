"""What the kernel counts of NFS mounts and of their cache."""

from __future__ import annotations

import re
from typing import Optional

from .mounts import read

VOLUMES = "/proc/fs/nfsfs/volumes"
STATISTICS = "/proc/fs/fscache/stats"
MOUNTS = "/proc/self/mountstats"
MOUNTED = "/proc/self/mountinfo"
CACHES = "/proc/fs/fscache/caches"
BOUND = "/proc/fs/fscache/volumes"
# Of the words behind "bytes:": normal, direct and server bytes, read and written in turn
# (show_stats in fs/nfs/super.c).
SERVER_READ = 4


def caches(path: str, volumes: str, mountinfo: str) -> bool:
    """Tell whether the column FSC says yes for the mount at a path, by the kernel's two tables."""
    return volume(path, volumes, mountinfo)[-1:] == ["yes"]


def volume(path: str, volumes: str, mountinfo: str) -> list[str]:
    """Return NV, SERVER, PORT, DEV, FSID, FSC of the mount at a path; nothing for no NFS mount."""
    # Not by stat, which would wait for a server that is away.
    mounted = (line.split(" ") for line in mountinfo.splitlines())
    devices = [words[2] for words in mounted if words[4] == path]
    rows = (line.split() for line in volumes.splitlines()[1:])
    return next((row for row in rows if len(row) >= 6 and row[3] in devices[-1:]), [])


def bound_to(row: list[str], bound: str) -> list[str]:
    """Return the tags of the caches that hold a mount's volume, cut to 15 characters as they are.

    A volume keeps the cache that it was mounted with: after another one has taken its place, FSC
    still says yes, and nothing is cached (seen with Linux 6.1). bound: the kernel's table of them.
    """
    fsid = f",{row[4].replace(':', ',')}," if row else None
    # VOLUME REF nCOOK ACC FL CACHE KEY, then a line of rulers.
    rows = (line.split(None, 6) for line in bound.splitlines()[2:])
    return [words[5] for words in rows if fsid and len(words) == 7 and fsid in f"{words[6]},"]


def active_caches(caches: str) -> list[str]:
    """Return the tags of the caches that the kernel works with; caches: its table of them."""
    # CACHE REF VOLS OBJS ACCES S NAME, then a line of rulers; of the states, A is active.
    rows = (line.split() for line in caches.splitlines()[2:])
    return [row[6] for row in rows if len(row) == 7 and row[5] == "A"]


def server_bytes(path: str, statistics: str) -> Optional[int]:
    """Return the bytes that were read from the server for a mount; None for no NFS mount."""
    here = False
    for line in statistics.splitlines():
        mounted = re.match(r"device .* mounted on (.*) with fstype ", line)
        if mounted:
            here = mounted[1] == path.replace("\\", "\\134").replace(" ", "\\040")
        words = line.split()
        if here and words[:1] == ["bytes:"]:
            return int(words[1 + SERVER_READ])
    return None


def cache_reads_and_writes(statistics: str) -> dict[str, int]:
    """Return how often the cache of all mounts was read and written; nothing without one."""
    found = re.search(r"^IO +: rd=(\d+) wr=(\d+)", statistics, re.MULTILINE)
    return {"reads": int(found[1]), "writes": int(found[2])} if found else {}


def caches_of(path: str) -> list[str]:
    """Return the tags of the caches that hold what is mounted at a path; nothing for none."""
    return bound_to(volume(path, read(VOLUMES), read(MOUNTED)), read(BOUND))


def now(path: str) -> tuple[Optional[int], dict[str, int]]:
    """Return bytes read from the server for a mount, and reads and writes of the cache, so far."""
    return server_bytes(path, read(MOUNTS)), cache_reads_and_writes(read(STATISTICS))
