"""How long the start of an engine has shown nothing new: no line, bytes read or memory taken."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import Any

from ..engine.log import news
from ..process.process import Files
from .compiling import compiles
from .snapshot import Snapshots

# Smaller changes are those of a process that waits.
STEP = 64 * 1024**2
MOST_BYTES = 1 << 20
LOOK_SECONDS = 5.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class Silence:
    """Looks again and again at the processes of one engine on this host."""

    def __init__(self, cluster_dir: str, processes: Collection[str]) -> None:
        self.cluster_dir, self.processes = cluster_dir, processes
        self.snapshots = Snapshots(cluster_dir)
        self._seen: Any = None
        self._read: dict[str, int] = {}
        self._news = 0
        self._since = self._next = 0.0

    def look(self, now: float) -> float:
        """Return for how many seconds nothing has changed. now: of a clock that never goes back."""
        if now >= self._next:
            seen = self._look(now)
            if seen != self._seen:
                self._seen, self._since = seen, now
            self._next = now + LOOK_SECONDS
        return now - self._since

    def _look(self, now: float) -> Any:
        for name in self.processes:
            with contextlib.suppress(OSError), open(Files(self.cluster_dir, name).log, "rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(max(self._read.get(name, size), size - MOST_BYTES))
                # A line that is said again and again while nothing moves is none.
                self._news += news(log.read(MOST_BYTES).decode(errors="replace"))
                self._read[name] = size
        groups = self.snapshots.take(now)
        own = [one for name in self.processes for one in groups.get(name, {}).values()]
        compiled = sorted((one.pid, one.ticks) for one in own if compiles(one.command))
        sizes = [_size(one.pid) for one in own]
        return self._news, compiled, sorted(one.identity for one in own), sum(sizes) // STEP


def _size(pid: int) -> int:
    """Return the bytes that a process has in memory and has read from its disks."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/statm", encoding="ascii") as handle:
            total += int(handle.read().split()[1]) * PAGE
        with open(f"/proc/{pid}/io", encoding="ascii") as handle:
            total += sum(int(line.split()[1]) for line in handle if line.startswith("read_bytes"))
    return total
