"""The watchdog: looks at the engines of its host every few seconds and keeps what is wrong.

It observes: nothing is stopped, started or changed. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Any, Optional

from ..awake import Awake
from . import state_file
from .finding import ENDED, OF_PROCESSES, Finding
from .host import Host
from .peers import Reached, follow
from .processes import Processes, staged
from .server import Watched
from .settings import Engine, Settings, read
from .snapshot import Groups, Snapshots
from .taken import take

EVERY_SECONDS = 2.0
# A busy engine on processors takes at least so much of one of them.
BUSY_PROCESSORS = 0.3
COMPILED_SECONDS = 10.0
MOST_PAST = 20
# What befalls an engine comes in several findings; its stacks are taken once.
TAKEN_SECONDS = 60.0


class Watchdog:
    """One host's looks, joined into one state file."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.snapshots = Snapshots(settings.cluster_dir)
        self.processes = Processes(settings)
        self.host = Host(settings)
        self.awake, self._missed = Awake(), 0.0
        self.watched = {
            one.name: Watched(
                one, one.server, settings.answer_seconds, settings.key_file, self.awake
            )
            for one in settings.engines
            if one.server is not None
        }
        self.reached = [Reached(one, peer) for one in settings.engines for peer in one.peers]
        self.known: dict[str, dict[str, Any]] = {}
        self.past: list[dict[str, Any]] = []
        self._taken: dict[str, float] = {}

    def start(self) -> None:
        """Begin what waits for others, each in threads of its own."""
        self.awake.start()
        for one in self.watched.values():
            one.start()
        follow(self.reached)

    def look(self) -> None:
        """Look once, and keep what was found."""
        step, before = self.host.stepped(), self._missed
        # What a process did between two looks, nobody saw if the watchdog stood still, too.
        self._missed = self.awake.missed
        self.processes.shift(step + self._missed - before)
        self._taken = {name: at + step for name, at in self._taken.items()}
        now = time.time()
        groups = self.snapshots.take(time.monotonic())
        # What befalls the host comes before what follows from it.
        found = self.host.look(groups, now, step) + self.processes.look(groups, now)
        over = {one.process for one in found if one.kind == ENDED} | self.processes.fresh
        ended = {engine.name for process in over if (engine := self._served_by(process))}
        held = {one.engine for one in found}
        for name, watched in self.watched.items():
            watched.progress.excused |= name in held
            if name in ended:
                watched.ended()
            elif wrong := watched.judge(self._busy(name, now)):
                found.append(wrong)
        found += [wrong for one in self.reached if (wrong := one.judge())]
        self._keep(sorted(found, key=lambda one: (one.follows, one.since)), groups, now)

    def _served_by(self, process: str) -> Optional[Engine]:
        return self.settings.engine_of(process) if "-serve" in process else None

    def _busy(self, engine: str, now: float) -> bool:
        compiled = now - self.processes.compiling.get(engine, float("-inf")) < COMPILED_SECONDS
        works = self.processes.busy.get(engine, 0.0) >= BUSY_PROCESSORS
        return compiled or (self.settings.on_processors and works)

    def _stage(self, engine: str) -> str:
        watched = self.watched.get(engine)
        return watched.stage if watched else "running"

    def _keep(self, found: list[Finding], groups: Groups, now: float) -> None:
        """Say what is new and what is over, and write the state file."""
        current: dict[str, dict[str, Any]] = {}
        for one in found:
            if one.key in current:
                continue
            if one.key in self.known:
                current[one.key] = self.known[one.key]
                continue
            document = staged(one, self._stage(one.engine)).document()
            document["named_at"] = now
            say(f"{one.engine}: {one.found}, while {document['stage']}")
            current[one.key] = document
            # The stacks of healthy processes would push out others, on a disk that may be full.
            if one.kind in OF_PROCESSES:
                self._take(one, document, groups, now)
        for key, document in self.known.items():
            if key not in current:
                say(f"{document['engine']}: over: {document['found']}")
                self.past = [*self.past, {**document, "until": now}][-MOST_PAST:]
        self.known = current
        engines = {one.name: self._stage(one.name) for one in self.settings.engines}
        state = {"at": time.time(), "host": self.settings.host, "engines": engines}
        state |= {"findings": list(current.values()), "past": self.past}
        state_file.write(self.settings.state_dir, state)

    def _take(self, one: Finding, document: dict[str, Any], groups: Groups, now: float) -> None:
        """Take stacks beside the loop: reading a process that hangs may hang, too."""
        members = [
            process
            for name, group in groups.items()
            if (engine := self.settings.engine_of(name)) and engine.name == one.engine
            for process in group.values()
        ]
        if not members or now - self._taken.get(one.engine, float("-inf")) < TAKEN_SECONDS:
            return
        self._taken[one.engine] = now
        directory = os.path.join(self.settings.state_dir, "stacks")
        document["stacks"] = directory
        label = f"{one.engine}-{one.kind}"

        def work() -> None:
            try:
                take(directory, label, members, self.settings.py_spy)
            finally:
                # Whoever would end the processes waits for it.
                document["taken_at"] = time.time()

        threading.Thread(target=work, daemon=True).start()


def say(words: str) -> None:
    """Write a line to the log; a full disk ends nothing, least of all what names it."""
    with contextlib.suppress(OSError):
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {words}", flush=True)


def main(path: str) -> None:
    """Look until somebody ends it."""
    settings = read(path)
    os.makedirs(settings.state_dir, mode=0o700, exist_ok=True)
    watchdog = Watchdog(settings)
    watchdog.start()
    say(f"watches {', '.join(one.name for one in settings.engines)}")
    while True:
        began = time.monotonic()
        try:
            watchdog.look()
        except OSError as error:
            # A full disk, or a table of descriptors that is full: the next look may be better.
            say(f"this look failed: {error}")
        time.sleep(max(0.2, EVERY_SECONDS - (time.monotonic() - began)))


if __name__ == "__main__":
    main(sys.argv[1])
