"""What /proc shows of the processes of a cluster, by the recorded process they belong to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from .. import launcher

# A process has its parent's environment until it has executed its own program.
FORGET_SECONDS = 20.0


@dataclass(frozen=True)
class Waiting:
    """A thread in uninterruptible sleep; `switches` stand still while it does nothing else."""

    thread: int
    switches: str
    where: str


@dataclass(frozen=True)
class Process:
    """One process at one moment. `ticks`: its processor time in units of the kernel's clock."""

    pid: int
    started: int
    parent: int
    command: str
    title: str
    state: str
    ticks: int
    waiting: tuple[Waiting, ...] = ()

    @property
    def identity(self) -> tuple[int, int]:
        """Return what tells it from a later process with its number."""
        return self.pid, self.started


Groups = dict[str, dict[int, Process]]


class Snapshots:
    """Looks again and again; keeps which process carries which record's mark."""

    def __init__(self, cluster_dir: str) -> None:
        self.prefix = f"{launcher.MARKER}={os.path.join(cluster_dir, 'processes')}/"
        self._known: dict[tuple[int, int], tuple[str, float]] = {}

    def take(self, now: float) -> Groups:
        """Return the living processes of each recorded process, by its name."""
        table = launcher.process_table()
        known: dict[tuple[int, int], tuple[str, float]] = {}
        groups: Groups = {}
        for pid, stat in table.items():
            key = (pid, stat.start_time)
            name, seen = self._known.get(key, ("", float("-inf")))
            if not name and now - seen > FORGET_SECONDS:
                name, seen = self.mark(pid), now
            known[key] = name, seen
            found = read(pid) if name else None
            if found is not None:
                groups.setdefault(name, {})[pid] = found
        self._known = known
        return groups

    def mark(self, pid: int) -> str:
        """Return the name of the record that a process carries in its environment, or nothing."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as handle:
            for word in handle.read().split(b"\0"):
                text = word.decode(errors="replace")
                if text.startswith(self.prefix) and text.endswith(".json"):
                    return text[len(self.prefix) : -len(".json")]
        return ""


def read(pid: int) -> Process | None:
    """Return what /proc says of one process, or None when it has gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            head, _, tail = handle.read().rpartition(")")
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            words = handle.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    fields = tail.split()
    return Process(
        pid=pid,
        started=int(fields[19]),
        parent=int(fields[1]),
        command=head.partition("(")[2],
        title=words,
        state=fields[0],
        ticks=int(fields[11]) + int(fields[12]),
        waiting=tuple(_waiting(pid)),
    )


def _waiting(pid: int) -> Iterator[Waiting]:
    """Yield the threads of a process in state D, with where in the kernel they are."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                directory = f"/proc/{pid}/task/{thread}"
                if _text(f"{directory}/stat").rpartition(")")[2].split()[0] != "D":
                    continue
                status = _text(f"{directory}/status").splitlines()
                switches = " ".join(line for line in status if "ctxt_switches" in line)
                yield Waiting(int(thread), switches, _text(f"{directory}/wchan").strip() or "?")


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as handle:
        return handle.read()
