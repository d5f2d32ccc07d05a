"""What is wrong with the host itself: a full disk, no memory left, a clock that was set."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Optional

from .finding import FULL, SCRATCH, Finding
from .settings import Settings
from .snapshot import Groups

GIB = 1 << 30
# Less than this share is left, and less than so many bytes.
LEAST_SHARE, LEAST_BYTES = 0.01, GIB
# Of memory: so many looks in a row.
LOOKS = 3
# Time servers correct less than this without a step.
CLOCK_SECONDS = 5.0
# What happens in a moment stays named for so long.
EVENT_SECONDS = 60.0
CGROUPS = "/sys/fs/cgroup"
DISK_FIX = "free space on it; `du -xsh {path}/*` shows what takes it"
MEMORY_FIX = "`ps -eo pid,rss,args --sort=-rss | head` shows what takes it"
KILLED_FIX = (
    "dmesg names the process and its size; lower what the engine keeps in memory "
    "(cpu_offload_gb, swap_space, max_num_seqs), or end what else takes it"
)
CLOCK_FIX = "see `chronyc tracking` or `timedatectl`; the stage verify compares the hosts' clocks"

# Processes of one group, by the recorded process they belong to.
Members = dict[str, set[tuple[int, int]]]


class Host:
    """Looks at one host again and again. Every finding is of each engine with ranks here."""

    def __init__(self, settings: Settings, meminfo: str = "/proc/meminfo") -> None:
        self.settings, self.meminfo = settings, meminfo
        self.paths = (
            settings.cluster_dir,
            os.path.join(settings.cluster_dir, "logs"),
            settings.state_dir,
            *SCRATCH,
        )
        self._since: dict[str, float] = {}
        self._scarce = 0
        self._offset: Optional[float] = None
        # By counter: who was in its group, its count, and that of the group above it.
        self._killed: dict[str, tuple[Members, int, int]] = {}
        self._events: dict[str, Finding] = {}

    def stepped(self) -> float:
        """Return by how many seconds the clock was set since the last call; back is below 0."""
        offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        before, self._offset = self._offset, offset
        step = 0.0 if before is None else offset - before
        return step if abs(step) >= CLOCK_SECONDS else 0.0

    def look(self, groups: Groups, now: float, step: float) -> list[Finding]:
        """Return what is wrong now. groups: one look; now: of time.time(); step: of `stepped`."""
        self._since = {key: at + step for key, at in self._since.items()}
        if step:
            way = "back" if step < 0 else "forward"
            words = f"the clock of {self.settings.host} was set {way} by {abs(step):.0f} s"
            for engine in self.settings.engines:
                self._event(f"clock {engine.name}", "clock", engine.name, now, words, CLOCK_FIX)
        self._note_killed(groups, now)
        self._events = {
            key: one for key, one in self._events.items() if 0 <= now - one.since <= EVENT_SECONDS
        }
        lasting = [*self._full(), *self._scarce_memory()]
        self._since = {key: self._since.get(key, now) for key, *_ in lasting}
        found = [
            Finding(
                key=f"{kind} {engine.name} {key}",
                kind=kind,
                engine=engine.name,
                process="",
                since=self._since[key],
                found=words,
                fix=fix,
            )
            for key, kind, words, fix in lasting
            for engine in self.settings.engines
        ]
        return [*self._events.values(), *found]

    def _event(
        self, key: str, kind: str, engine: str, now: float, words: str, fix: str, process: str = ""
    ) -> None:
        self._events[key] = Finding(
            key=f"{key} {now:.0f}",
            kind=kind,
            engine=engine,
            process=process,
            since=now,
            found=words,
            fix=fix,
        )

    def _full(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield each file system of the cluster on which next to nothing is left."""
        seen = set()
        for path in self.paths:
            try:
                device, space = os.stat(path).st_dev, os.statvfs(path)
            except OSError:
                continue
            if device in seen or not space.f_blocks:
                continue
            seen.add(device)
            size, left = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
            if left < min(LEAST_BYTES, LEAST_SHARE * size):
                words = f"{left >> 20} of {size >> 20} MiB"
            elif space.f_files and not space.f_favail:
                words = f"0 of {space.f_files} inodes"
            else:
                continue
            words = f"the file system of {path} on {self.settings.host} is full: {words} are left"
            yield path, FULL, words, DISK_FIX.format(path=path)

    def _scarce_memory(self) -> Iterator[tuple[str, str, str, str]]:
        sizes = {}
        with contextlib.suppress(OSError, ValueError), open(self.meminfo, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(":")
                sizes[name] = int(value.split()[0]) << 10
        size, left = sizes.get("MemTotal", 0), sizes.get("MemAvailable", GIB)
        scarce = left < min(LEAST_BYTES, LEAST_SHARE * size)
        self._scarce = self._scarce + 1 if scarce else 0
        if self._scarce >= LOOKS:
            words = f"{left >> 20} of {size >> 20} MiB are available"
            words = f"the memory of {self.settings.host} is used up: {words}"
            yield "memory", "memory", words, MEMORY_FIX

    def _note_killed(self, groups: Groups, now: float) -> None:
        """Notice what the kernel has killed of an engine for want of memory."""
        members: dict[str, Members] = {}
        present = set()
        for name, group in groups.items():
            if self.settings.engine_of(name) is None:
                continue
            for pid, one in group.items():
                present.add(one.identity)
                for path in counters(pid):
                    members.setdefault(path, {}).setdefault(name, set()).add(one.identity)
        before, self._killed = self._killed, {}
        for path in {**before, **members}:
            count, count_above = kills(path), kills(above(path)) or 0
            if path in before:
                were, count_before, above_before = before[path]
                # systemd ends a unit, and its group, together with what was killed in it.
                risen = count_above - above_before if count is None else count - count_before
                names = sorted({*were, *members.get(path, {})})
                if len(names) > 1:
                    # Any of them may be meant; most likely one of which something has ended.
                    names = [one for one in names if were.get(one, set()) - present] or names
                if risen > 0:
                    self._name_killed(names, risen, now)
            if path in members:
                self._killed[path] = members[path], count or 0, count_above

    def _name_killed(self, names: list[str], number: int, now: float) -> None:
        shared = " (one memory cgroup)" if len(names) > 1 else ""
        words = (
            f"the kernel has killed {number} of the processes of {', '.join(names)}{shared} on "
            f"{self.settings.host} for want of memory"
        )
        process = "" if shared else names[0]
        for engine in {one.name: one for one in map(self.settings.engine_of, names) if one}:
            self._event(f"killed {engine}", "memory", engine, now, words, KILLED_FIX, process)


def counters(pid: int, root: str = CGROUPS) -> list[str]:
    """Return the files that count what was killed for want of memory in the group of a process."""
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8") as handle:
        for line in handle.read().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                found.append(os.path.join(directory(path, root), "memory.events"))
            elif "memory" in controllers.split(","):
                found.append(os.path.join(directory(path, f"{root}/memory"), "memory.oom_control"))
    return [path for path in found if os.path.exists(path)]


def directory(group: str, mount: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return where a group is below a mount, whose top is its own group in many a container."""
    top = ""
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8") as handle:
        for line in handle:
            shown, at = line.split()[3:5]
            if at == mount:
                top = shown.rstrip("/")
    if group == top or group.startswith(f"{top}/"):
        group = group[len(top) :]
    return f"{mount}{group.rstrip('/')}"


def above(path: str) -> str:
    """Return the counter of the group above one; it counts those below it, too, in version 2."""
    return os.path.join(os.path.dirname(os.path.dirname(path)), os.path.basename(path))


def kills(path: str) -> Optional[int]:
    """Return how many processes of a group were killed for want of memory; None without it."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as handle:
        for line in handle:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None
