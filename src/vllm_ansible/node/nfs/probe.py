"""Read one file twice over a mount, and count what came from the server each time."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from ..system.page_cache import resident_bytes
from . import counters
from .mounts import read as text_of

MIB = 1 << 20
# Beside what clients read and write: whoever serves the directory may make this one, so that a
# client whose root is nobody there can write into it.
DIRECTORY = ".nfs-cache-probe"
# The cache is written after the reader has its data, and others read over the same mount.
REPEATS = 3
# A page that is still on its way into the cache cannot be dropped.
DROP_SECONDS = 60
FROM_SERVER = 0.1


def probe(path: str, name: str, size: int, cached: bool) -> dict[str, Any]:
    """Return what two or more reads of a new file of size bytes took.

    path is the mount; name is this host's, since all share the directory. Each read has seconds,
    server_bytes, memory_bytes (what was left in memory before it) and cache_reads. With cached, the
    file is read again until it comes from the cache, but not for ever.
    """
    directory = os.path.join(path, DIRECTORY)
    place = os.path.join(directory, name)
    before = counters.cache_reads_and_writes(text_of(counters.STATISTICS))
    if not os.path.isdir(directory):
        os.mkdir(directory)
    try:
        write(place, size)
        reads = [timed_read(place, path), timed_read(place, path)]
        while cached and not from_cache(reads[-1], size) and len(reads) <= REPEATS:
            reads.append(timed_read(place, path))
        after = counters.cache_reads_and_writes(text_of(counters.STATISTICS))
        fsc = counters.caches(path, text_of(counters.VOLUMES), text_of(counters.MOUNTED))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(place)
    return {"bytes": size, "fsc": fsc, "reads": reads, "before": before, "after": after}


def from_cache(one: dict[str, Any], size: int) -> bool:
    """Tell whether a read of size bytes came neither from the server nor from memory."""
    server = one["server_bytes"]
    return server is not None and max(server, one["memory_bytes"]) < FROM_SERVER * size


def write(place: str, size: int) -> None:
    """Write a file that is unlike any before it, and see it at the server."""
    block = os.urandom(MIB)
    # What is left of a run that was ended. Others may write to the directory: a link that they laid
    # there is not followed.
    with suppress(FileNotFoundError):
        os.unlink(place)
    made = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(made, "wb") as handle:
        for number in range(0, size, MIB):
            handle.write(block[: min(MIB, size - number)])
        handle.flush()
        os.fsync(handle.fileno())


def timed_read(place: str, mount: str) -> dict[str, Any]:
    """Read a file that memory has forgotten; return seconds and where its bytes came from."""
    with open(place, "rb", buffering=0) as handle:
        memory = forget(handle.fileno(), os.path.getsize(place))
        server, cache = counters.now(mount)
        began = time.monotonic()
        while handle.read(MIB):
            pass
        seconds = time.monotonic() - began
        server_after, cache_after = counters.now(mount)
    counted = server is not None and server_after is not None
    return {
        "seconds": round(seconds, 3),
        "server_bytes": (server_after or 0) - (server or 0) if counted else None,
        "memory_bytes": memory,
        "cache_reads": cache_after.get("reads", 0) - cache.get("reads", 0),
    }


def forget(handle: int, size: int) -> int:
    """Let memory forget an open file; return how many of its bytes it would not."""
    deadline = time.monotonic() + DROP_SECONDS
    while True:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        left = in_memory(handle, size)
        if left < FROM_SERVER * size or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def in_memory(handle: int, size: int) -> int:
    """Return how many bytes of an open file memory holds, in whole pages."""
    return resident_bytes(handle, 0, size)
