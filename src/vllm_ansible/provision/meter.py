"""End a cluster's machines when they have been rented for long enough, or have cost enough.

A process of its own on the controller, for nobody may be there when a run has failed at night:

    python -m vllm_ansible.provision.meter FILE

FILE holds the inventory's variables and is read again at every look, so that a limit can be raised;
it may name the file of an API key and never holds the key. Its own name is the provider's and
"-meter.json". The process ends with the last machine, or when FILE says that it ends; that FILE is
gone says nothing, for whoever deletes its directory deletes it first. One runs for each cluster;
another one ends at once.

A process whose lists are refused for minutes, as after its credentials expired, releases its lock:
it looks on, but counts as none, so that a unit that stands by takes its place, or the next command
starts another one with what that command asks with. It ends when another one holds the lock.

No write may keep it from looking and ending: the controller's disk may be full for a night. What it
has read once it goes on with where it can read it no more.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from vllm_ansible.problem import PlanError

from . import files, watcher
from .cluster import Cluster
from .ending import end_every
from .fleet import GONE
from .limits import seconds_left, spent
from .provider import Settings, provider

LOOK_SECONDS = 60.0
ENDING_SECONDS = 600.0
# Without a list for so long, it is no watcher.
BLIND_SECONDS = 300.0
# A run that holds the machines gives way to the limit within seconds, unless it is suspended.
HELD_SECONDS = 60.0
# Whoever asks whether a watcher lives holds its lock for a moment.
TRIES, TRY_SECONDS = 20, 0.1


class Ended(Exception):
    """There is nothing more to watch: the limits were removed, or the machines ended."""


def look(
    cluster: Cluster,
    wanted: Settings,
    say: Callable[[str], None],
    reread: Callable[[], Settings],
) -> bool:
    """Look once, and end the machines where a limit is reached; return whether any are left.

    `reread` returns the settings as they are by then.
    """
    # Somebody else's have their own watcher, and may serve.
    living = [one for one in cluster.machines() if one.status not in GONE and cluster.mine(one)]
    if not living:
        return cluster.is_busy()
    why = spent(cluster.ledger, wanted, time.time())
    if not why:
        return True
    # Two that end the same machines do no harm; one that waits all night for the other does.
    with cluster.alone(say, HELD_SECONDS, beside=True):
        # Whoever held the machines until now may have been given a higher limit.
        if not spent(cluster.ledger, reread(), time.time()):
            return True
        say(f"ending {len(living)} machines: {why}")
        done = end_every(cluster.fleets(), ENDING_SECONDS, say, mine=cluster.mine)
        cluster.machines()
    say(f"{len(done.ended)} machines ended, {len(done.left)} left")
    # Whoever held them all the same may be about to launch another one.
    return bool(done.left) or cluster.is_busy()


class Watch:
    """The loop of looks, and what it remembers between two of them."""

    def __init__(self, file: Path, lock: TextIO | None = None) -> None:
        self._file, self._lock = file, lock
        self._text = ""
        self._kept: tuple[Cluster, Settings] | None = None
        # The file as it was at the last look.
        self._seen: tuple[int, int] | None = None
        # When it was told last which machines there are, or began.
        self._told = time.monotonic()
        self._released = False

    def run(self) -> bool:
        """Look every minute until there is nothing to watch; tell whether another one took over."""
        while self._goes_on():
            left = None
            try:
                cluster, wanted = self._read()
                goes_on = look(cluster, wanted, say, lambda: self._read()[1])
                self._sees()
                if not goes_on:
                    break
                left = seconds_left(cluster.ledger, wanted, time.time())
            except Exception as error:
                # Whatever it is, giving up would let the machines cost on.
                say(f"no look: {type(error).__name__}: {error}")
                if self._replaced():
                    return True
            self._sleep(LOOK_SECONDS if left is None else min(left, LOOK_SECONDS))
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        watcher.forget_unit(self._file)
        return False

    def _goes_on(self) -> bool:
        """Tell whether to look again, and say when somebody looked last."""
        if not self._file.exists():
            # Teardown deletes it where no process counts as a watcher.
            if not self._kept or self._released:
                return False
            say(f"{self._file} is gone, the machines may not be: watching on")
            self._keep_again()
        with suppress(OSError):
            if self._file.read_text() == watcher.ENDED:
                return False
        self._seen = self._look_of_file()
        return True

    def _sees(self) -> None:
        """Keep when it was told which machines there are, for whoever asks since when nobody is."""
        self._told = time.monotonic()
        with suppress(OSError):
            os.utime(self._lock.fileno() if self._lock else self._file)
        if self._released and self._lock and take(self._lock, 1):
            say("there is a list again: this process watches")
            self._released = False

    def _replaced(self) -> bool:
        """Tell whether another process watches instead of this one, which is refused each list."""
        if not self._lock or time.monotonic() - self._told < BLIND_SECONDS:
            return False
        if not self._released:
            say(f"no list for {BLIND_SECONDS:.0f} s: the next command starts another watcher")
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._released = True
            return False
        if not watcher.lives(self._file):
            return False
        say("another process watches now: this one ends")
        return True

    def _keep_again(self) -> None:
        """Write down what was read last, and hold a lock that others can see."""
        try:
            files.write(self._file, self._text)
        except OSError as error:
            say(f"not kept again: {error}")
            return
        lock = open_lock(self._file)
        if lock and take(lock):
            self._lock = lock

    def _read(self) -> tuple[Cluster, Settings]:
        """Return the cluster and its settings, as they are or as they were read last."""
        try:
            text = self._file.read_text()
            if text == watcher.ENDED:
                raise Ended(f"{self._file} says that it ends")
            cloud = provider(self._file.name.removesuffix(watcher.FILE))
            wanted = cloud.settings(json.loads(text), str(self._file))
            cluster = cloud.cluster(wanted, self._file.parents[1])
            # Reads the key, which may be another one by now.
            assert cluster.api  # noqa: S101  never false
        except (OSError, ValueError, PlanError) as error:
            if not self._kept:
                raise
            say(f"going on with what was read last: {error}")
            return self._kept
        if self._kept:
            # What the disk had no room for.
            cluster.ledger = self._kept[0].ledger
        self._text, self._kept = text, (cluster, wanted)
        return self._kept

    def _sleep(self, seconds: float) -> None:
        """Wait for the next look, or for the file to be another one: a second at the least."""
        until = time.monotonic() + max(seconds, 1.0)
        time.sleep(1.0)
        while self._look_of_file() == self._seen and time.monotonic() < until:
            time.sleep(min(0.5, max(until - time.monotonic(), 0.0)))

    def _look_of_file(self) -> tuple[int, int] | None:
        """Return what changes when the file is replaced, or says that it ends."""
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size


def main(file: Path, stands_by: bool = False) -> None:
    """Watch; while another process does, stand by or end."""
    with suppress(OSError):
        log = os.open(file.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
    lock = open_lock(file)
    if not lock:
        # Two that end the same machines do no harm; none does.
        say(f"no lock: neither {file.with_suffix('.lock')} nor {file} can be opened")
        Watch(file).run()
        return
    with lock:
        if stands_by or take(lock):
            if stands_by:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if Watch(file, lock).run() and stands_by:
                # systemd starts it again, to stand by for the other one.
                raise SystemExit(1)


def open_lock(file: Path) -> TextIO | None:
    """Open what shows others that somebody watches: where nothing can be written, what is there."""
    lock = file.with_suffix(".lock")
    with suppress(OSError):
        return lock.open("a")
    for path in (lock, file):
        with suppress(OSError):
            return path.open("r")
    return None


def take(lock: TextIO, tries: int = TRIES) -> bool:
    """Hold the lock, unless another process watches."""
    for _ in range(tries):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(TRY_SECONDS)
        else:
            return True
    return False


def say(text: str) -> None:
    """Write a line for whoever looks later, if there is room for it."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n"
    with suppress(OSError):
        os.write(1, line.encode(errors="backslashreplace"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), watcher.STAND_BY in sys.argv[2:])
