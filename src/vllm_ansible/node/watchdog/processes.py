"""Judge the processes of engines by looks that follow each other, without a clock of its own."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from .compiling import compiles
from .finding import ENDED, Finding
from .settings import Engine, Settings
from .snapshot import Groups, Process, Waiting

# A debugger that reads stacks stops a process for seconds, too.
STOPPED_SECONDS = 6.0
WAITING_SECONDS = 20.0
# A rank that ends so soon was never part of an engine that served.
LIVED_SECONDS = 5.0
RANK = re.compile(r"^(?:VLLM::(?!.*Tracker)|ray::(?:\w+\.)?RayWorker)")
RAY = ("raylet", "gcs_server")
TRACED = "held by a debugger (state t)"
GONE_FIX = (
    "read its log: vllm-ansible diagnose --logs DIRECTORY names the cause; site.yml starts it again"
)


@dataclass(frozen=True)
class Since:
    """When something was first seen, and what it was."""

    at: float
    process: Process


class Processes:
    """What the processes of the engines of a host do over time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stopped: dict[tuple[int, int], float] = {}
        self._waiting: dict[tuple[int, Waiting], float] = {}
        # By recorded process: its first process, and the ranks that were seen below it.
        self._roots: dict[str, Process] = {}
        self._ranks: dict[str, dict[tuple[int, int], Since]] = {}
        self._lost: dict[str, list[Finding]] = {}
        self._ended: dict[str, Finding] = {}
        self._ticks: dict[str, tuple[float, int]] = {}
        self.compiling: dict[str, float] = {}
        # Processes of which this look has found another start.
        self.fresh: set[str] = set()
        # Processor seconds each second, by engine.
        self.busy: dict[str, float] = {}

    def look(self, groups: Groups, now: float) -> list[Finding]:
        """Return what is wrong now. groups: one look; now: of time.time()."""
        found: list[Finding] = []
        self.fresh = set()
        seen_stopped: dict[tuple[int, int], float] = {}
        seen_waiting: dict[tuple[int, Waiting], float] = {}
        for name, group in groups.items():
            engine = self.settings.engine_of(name)
            if engine is None:
                continue
            if any(compiles(one.command) for one in group.values()):
                self.compiling[engine.name] = now
            for one in group.values():
                if one.state in "Tt":
                    since = seen_stopped[one.identity] = self._stopped.get(one.identity, now)
                    if now - since >= STOPPED_SECONDS:
                        found.append(_stopped(engine, name, one, since))
                for thread in one.waiting:
                    key = (one.pid, thread)
                    since = seen_waiting[key] = self._waiting.get(key, now)
                    if now - since >= WAITING_SECONDS:
                        found.append(_waiting(engine, name, one, thread, since))
            self._follow(engine, name, group, now)
        self._stopped, self._waiting = seen_stopped, seen_waiting
        self._end(groups, now)
        self._measure(groups, now)
        lost = [one for ones in self._lost.values() for one in ones]
        return sorted([*found, *lost, *self._ended.values()], key=lambda one: one.since)

    def shift(self, step: float) -> None:
        """Go on after the clock was set by so many seconds: what was seen before stays as old."""
        self._stopped = {key: at + step for key, at in self._stopped.items()}
        self._waiting = {key: at + step for key, at in self._waiting.items()}
        self.compiling = {name: at + step for name, at in self.compiling.items()}
        self._ticks = {name: (at + step, ticks) for name, (at, ticks) in self._ticks.items()}
        for ranks in self._ranks.values():
            ranks.update({key: Since(one.at + step, one.process) for key, one in ranks.items()})

    def _follow(self, engine: Engine, name: str, group: dict[int, Process], now: float) -> None:
        """Notice ranks that end while the process that they belong to lives on."""
        root = min(group.values(), key=lambda one: (one.started, one.pid))
        ranks = {
            one.identity: one
            for one in group.values()
            if RANK.match(one.title) or one.command in RAY
        }
        before = self._roots.get(name)
        if before is None or before.identity != root.identity:
            # Another start: what was before it is not missed.
            self._ranks[name], self._lost[name] = {}, []
            if before is not None:
                self.fresh.add(name)
        self._roots[name] = root
        self._ended.pop(name, None)
        known = self._ranks[name]
        for key in set(known) - set(ranks):
            gone = known.pop(key)
            if now - gone.at >= LIVED_SECONDS:
                self._lost[name].append(_lost(engine, name, gone.process, now))
        if any(key not in known and RANK.match(one.title) for key, one in ranks.items()):
            self._lost[name] = []
        for key, one in ranks.items():
            known[key] = Since(known[key].at if key in known else now, one)

    def _end(self, groups: Groups, now: float) -> None:
        for name, root in self._roots.items():
            engine = self.settings.engine_of(name)
            if name not in groups and name not in self._ended and engine is not None:
                self._ended[name] = Finding(
                    key=f"ended {name} {root.pid}",
                    kind=ENDED,
                    engine=engine.name,
                    process=name,
                    since=now,
                    found=f"{name} (process {root.pid}) has ended",
                    fix=GONE_FIX,
                    pid=root.pid,
                )

    def _measure(self, groups: Groups, now: float) -> None:
        """Keep how much processor time each engine takes."""
        sums: dict[str, int] = {}
        for name, group in groups.items():
            if engine := self.settings.engine_of(name):
                ticks = sum(one.ticks for one in group.values())
                sums[engine.name] = sums.get(engine.name, 0) + ticks
        for engine_name, ticks in sums.items():
            at, before = self._ticks.get(engine_name, (now, ticks))
            if now > at:
                self.busy[engine_name] = max(0, ticks - before) / 100 / (now - at)
            self._ticks[engine_name] = now, ticks


def described(engine: Engine, name: str, process: Process) -> str:
    """Return which process it is: its rank where that is known, its title, its number."""
    title = process.title if RANK.match(process.title) else process.command
    title = title.split(" ")[0]
    ranks = ", ".join(str(rank) for rank in engine.ranks)
    if "RayWorker" in title and ranks:
        title = f"{'rank' if len(engine.ranks) == 1 else 'one of the ranks'} {ranks} ({title})"
    return f"{title}, process {process.pid} of {name}"


def _stopped(engine: Engine, name: str, process: Process, since: float) -> Finding:
    traced = process.state == "t"
    return Finding(
        key=f"stopped {process.pid} {process.started}",
        kind="stopped",
        engine=engine.name,
        process=name,
        since=since,
        found=f"{described(engine, name, process)} is "
        + (TRACED if traced else "stopped (state T, by SIGSTOP)"),
        fix="end the debugger" if traced else f"kill -CONT {process.pid} resumes it",
        pid=process.pid,
    )


def _waiting(engine: Engine, name: str, process: Process, thread: Waiting, since: float) -> Finding:
    return Finding(
        key=f"waiting {process.pid} {process.started}",
        kind="waiting",
        engine=engine.name,
        process=name,
        since=since,
        found=f"{described(engine, name, process)} waits in the kernel (state D) in {thread.where}",
        fix="a device or a file system does not answer: read dmesg of this host",
        pid=process.pid,
    )


def _lost(engine: Engine, name: str, process: Process, now: float) -> Finding:
    return Finding(
        key=f"lost {process.pid} {process.started}",
        kind="lost",
        engine=engine.name,
        process=name,
        since=now,
        found=f"{described(engine, name, process)} has ended, while {name} runs on",
        fix=GONE_FIX,
        pid=process.pid,
    )


def stopped(groups: Groups, names: Collection[str]) -> list[str]:
    """Return the processes of these records that one look finds stopped, in words."""
    return [
        f"{(one.title or one.command).split(' ')[0]}, process {one.pid} of {name}, is stopped "
        f"(state {one.state}); kill -CONT {one.pid} resumes it"
        for name in sorted(names)
        for one in groups.get(name, {}).values()
        if one.state in "Tt"
    ]


def staged(finding: Finding, stage: str) -> Finding:
    """Return a finding with the stage that its engine was in."""
    return finding if finding.stage else replace(finding, stage=stage)
