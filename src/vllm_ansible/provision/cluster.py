"""One cluster at its provider as its commands see it, and what is kept of it on the controller."""

from __future__ import annotations

import fcntl
import getpass
import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, TextIO

from vllm_ansible.problem import PlanError, Problem

from . import files
from .accepted import Accepted
from .convergence import Fleet
from .fleet import GONE, Machine, is_settled
from .ledger import FILE, Ledger
from .listing import Listing
from .orphans import Orphan
from .price import dollars
from .provider import Settings
from .watcher import FILE as METER

LOOK_SECONDS = 1.0
# A tag's value is no longer than this.
OWNER_LENGTH = 128


class Surroundings(Protocol):
    """What machines need beside themselves."""

    @property
    def changed(self) -> list[str]:
        """What was made or changed."""

    def ready(self, place: str) -> Any:
        """Make what is missing in a place."""

    def remove(self) -> list[str]:
        """Remove what is the cluster's own; its machines have to be gone."""


class Cluster(ABC):
    """What the inventory plugin, the stage and the verbs share.

    `state` is the controller's directory of all clusters; files in it begin with the provider's
    `name`.
    """

    name: ClassVar[str]
    # Of a listed machine, what is kept for the commands of the next minute.
    kept: ClassVar[tuple[str, ...]]

    def __init__(self, settings: Settings, state: Path) -> None:
        self._wanted, self._state = settings, state
        # Where no orphans could be looked for, each with why.
        self.unseen: list[str] = []
        self._own = state / settings.cluster
        self._listing = Listing(self._file("instances.json"), self.kept)

    @property
    @abstractmethod
    def api(self) -> Any:
        """The provider's API, asked as the inventory says."""

    @property
    @abstractmethod
    def surroundings(self) -> Surroundings:
        """What the machines need beside themselves."""

    @abstractmethod
    def listed(self) -> list[dict[str, Any]]:
        """Return what the provider lists, other clusters' machines among them or not."""

    @abstractmethod
    def read(self, listed: Sequence[Mapping[str, Any]]) -> list[Machine]:
        """Return those of listed machines that are this cluster's."""

    @abstractmethod
    def fleet(self) -> Fleet:
        """Return the machines as they are launched, moved and ended."""

    def part(self, name: str) -> Fleet:
        """Return the machine of a part beside the cluster, as a fleet of one."""
        raise NotImplementedError(name)

    def fleets(self) -> list[Fleet]:
        """Return everything that is launched and ended, the cluster's own machines first."""
        return [self.fleet()]

    def needless(self, part: str, holds: str) -> str:
        """Return why a part beside the cluster is not needed; nothing where it is."""
        raise NotImplementedError(part)

    def finished(self, part: str, holds: str) -> str:
        """Keep what a part beside the cluster has done; return it in words."""
        raise NotImplementedError(part)

    def equip(self, machines: Sequence[Machine]) -> None:  # noqa: B027  most need nothing
        """Give machines what they can be given only once they exist."""

    @abstractmethod
    def orphans(self) -> list[Orphan]:
        """Return what is paid for and no machine of a slot of this cluster."""

    @abstractmethod
    def end_orphans(self, identities: Sequence[str]) -> set[str]:
        """End what was found to be an orphan; return the ids of what is ending."""

    @property
    def _lock(self) -> Path:
        return self._own / f"{self.name}.lock"

    def _file(self, name: str) -> Path:
        return self._own / f"{self.name}-{name}"

    @property
    def note(self) -> Path:
        """The launch that is not listed yet."""
        return self._file("launch.json")

    @property
    def known_hosts(self) -> Path:
        """The host keys that were learnt when machines were accepted."""
        return self._own / "known_hosts"

    @property
    def state(self) -> str:
        """The id of this state/, by which machines are ours whatever this machine is called."""
        try:
            return (self._file("state-id")).read_text().strip()
        except OSError:
            return ""

    def keep_state(self) -> None:
        """Give this state/ its id, if it has none."""
        if not self.state:
            files.write(self._file("state-id"), secrets.token_hex(16))

    def launched_here(self, machine: Machine) -> bool:
        """Tell whether this state/ has launched a machine: no other may be judged, and so ended."""
        return bool(machine.state) and machine.state == self.state

    def unjudged(self, machine: Machine) -> bool:
        """Tell whether a machine serves nobody yet: launched from here, and never found fit."""
        return self.launched_here(machine) and self.accepted.told(machine.id) is None

    @property
    def accepted(self) -> Accepted:
        """Which machines were found fit."""
        return accepted(self._state, self._wanted.cluster)

    @property
    def meter(self) -> Path:
        """What the process that watches the limits reads."""
        return self._own / f"{self.name}{METER}"

    @cached_property
    def ledger(self) -> Ledger:
        """What the cluster's machines have cost."""
        return Ledger(self._file(FILE))

    def machines(self, cached: bool = False) -> list[Machine]:
        """Return the cluster's machines, perhaps as they were within the last minute."""
        listed = self._listing.fresh() if cached else None
        if listed is None:
            cached, listed = False, self._listing.keep(self.listed())
        found = self.read(listed)
        if not cached:
            self.see(found)
        return found

    def see(self, found: Sequence[Machine]) -> None:
        """Write down what is listed now, and what it costs."""
        self.ledger.see(found, time.time(), self._is_tagged)

    def _is_tagged(self, machine: Machine) -> bool:
        return machine.owner == self._owner or self.launched_here(machine)

    def mine(self, machine: Machine) -> bool:
        """Tell whether a machine was rented from here, whatever this machine is called by now.

        Its tags say so, or what is kept here: of before this state/ had an id, no tag can.
        """
        if self._wanted.adopt or not machine.owner or self._is_tagged(machine):
            return True
        if machine.state:
            return False
        entry = self.ledger.entries().get(machine.id)
        return bool(entry and entry.ours) or self.accepted.told(machine.id) is not None

    @contextmanager
    def alone(
        self,
        report: Callable[[str], None],
        patience_seconds: float | None = None,
        beside: bool = False,
    ) -> Iterator[None]:
        """Hold the cluster's machines for one process, after whoever changes them now.

        What a killed run had started goes on for a moment: two that count at the same time would
        both launch what is missing. After `patience_seconds`, if given, it goes on beside that
        process where asked to, else it raises PlanError, which names it.
        """
        with self._lock_file() as lock:
            until = None if patience_seconds is None else time.monotonic() + patience_seconds
            if lock:
                holder = _holder(lock, report, until)
                if holder and not beside:
                    raise PlanError(self._hung(holder, patience_seconds or 0))
                if holder:
                    report(f"{holder} rents for this cluster and does not stop: going on beside it")
                else:
                    with suppress(OSError):
                        lock.truncate(0)
                        os.write(lock.fileno(), str(os.getpid()).encode())
            yield

    def _hung(self, holder: str, seconds: float) -> Problem:
        number = holder.rpartition(" ")[2]
        end = f"kill -KILL {number}" if number.isdigit() else f"fuser -k {self._lock}"
        return Problem(
            f"{holder} rents for this cluster and has not stopped for {seconds:.0f} s; "
            "no machine was ended",
            expected="no other process of this controller that changes the cluster's machines",
            found=f"{holder} holds the lock",
            where=str(self._lock),
            fix=f"wait for that run to end, or end it: `{end}`; then run the same command again",
        )

    @contextmanager
    def _lock_file(self) -> Iterator[TextIO | None]:
        """Open the file that is locked; nothing where it cannot be made.

        A disk without room keeps nobody from ending machines, and nobody launches there: a launch
        is noted before it is sent.
        """
        try:
            self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self._lock.open("a+")
        except OSError:
            yield None
            return
        with lock:
            yield lock

    def is_busy(self) -> bool:
        """Tell whether some process changes the machines now, or a launch may yet be listed."""
        noted = [one.pending for one in self.fleets()]
        if any(one and not is_settled(one, (), time.time()) for one in noted):
            return True
        try:
            with self._lock.open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def claim(self, machines: Sequence[Machine]) -> None:
        """Raise PlanError where somebody else has rented machines under this cluster's name."""
        others = [one for one in machines if one.status not in GONE and not self.mine(one)]
        if not others:
            return
        name, whose = self._wanted.cluster, ", ".join(sorted({one.owner for one in others}))
        found = [f"{one.id} ({one.owner}, {dollars(one.cents_per_hour)})" for one in others]
        raise PlanError(
            Problem(
                f"the machines of cluster {name} were rented by {whose}",
                expected=f"machines that {self._owner} has rented, or this state/",
                found=", ".join(found),
                where="cluster_name",
                fix="choose another cluster_name; or, to work on these machines from here, "
                f"set {self.name}_adopt: true; where this machine changes its name, as "
                f"containers do, set {self.name}_owner",
            )
        )

    @property
    def _owner(self) -> str:
        return self._wanted.owner or owner()


def _holder(lock: TextIO, report: Callable[[str], None], until: float | None) -> str:
    """Acquire a lock; return nothing, or who still holds it when the time is over."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            lock.seek(0)
            who = f"process {lock.read().strip() or 'unknown'}"
        if until is not None and time.monotonic() >= until:
            return who
        report(f"waiting for {who}, which rents for this cluster; kill ends it")
        time.sleep(LOOK_SECONDS)


def accepted(state: Path, cluster: str) -> Accepted:
    """Return which machines of a cluster were found fit."""
    return Accepted(state / cluster / "accepted")


def owner() -> str:
    """Return who rents from here, as tags say it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:OWNER_LENGTH]
