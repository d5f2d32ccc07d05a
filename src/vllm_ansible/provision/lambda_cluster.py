"""One cluster at Lambda as its commands see it: the API in its turn, and what is kept of it."""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from vllm_ansible.planner.problem import PlanError, Problem

from .accepted import Accepted
from .clock import Clock
from .fleet import GONE, Machine, is_settled
from .lambda_api import LambdaApi
from .lambda_fleet import LambdaFleet, Template, cluster_of, machine
from .lambda_listing import Listing
from .lambda_settings import Settings
from .lambda_surroundings import Surroundings
from .ledger import FILE, Ledger

LOOK_SECONDS = 1.0
# A tag's value is no longer than this.
OWNER_LENGTH = 128


class LambdaCluster:
    """What the inventory plugin, the stage and the verbs share.

    `state` is the controller's directory of all clusters. The clock belongs to the API key, for it
    is the key's requests that Lambda counts.
    """

    def __init__(self, settings: Settings, state: Path) -> None:
        self._settings, self._state = settings, state
        self._own = state / settings.cluster
        self._listing = Listing(self._own / "lambda-instances.json")

    @cached_property
    def api(self) -> LambdaApi:
        """The API, asked with the inventory's key."""
        key = self._settings.key()
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        clock = Clock(self._state / ".lambda" / name, self._settings.intervals)
        return LambdaApi(key, clock, self._settings.endpoint)

    @property
    def known_hosts(self) -> Path:
        """The host keys that were learnt when machines were accepted."""
        return self._own / "known_hosts"

    @property
    def accepted(self) -> Accepted:
        """Which machines were found fit."""
        return accepted(self._state, self._settings.cluster)

    @property
    def meter(self) -> Path:
        """What the process that watches the limits reads."""
        return self._own / "lambda-meter.json"

    @property
    def ledger(self) -> Ledger:
        """What the cluster's machines have cost."""
        return Ledger(self._own / FILE)

    def machines(self, cached: bool = False) -> list[Machine]:
        """Return the cluster's machines, perhaps as they were within the last minute."""
        listed = self._listing.fresh() if cached else None
        if listed is None:
            cached, listed = False, self._listing.keep(self.api.instances())
        found = [machine(one) for one in listed if cluster_of(one) == self._settings.cluster]
        if not cached:
            self.ledger.see(found, time.time())
        return found

    @contextmanager
    def alone(self, report: Callable[[str], None]) -> Iterator[None]:
        """Hold the cluster's machines for one process, after whoever changes them now.

        What a killed run had started goes on for a moment: two that count at the same time would
        both launch what is missing.
        """
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._own / "lambda.lock").open("a+") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    lock.seek(0)
                    who = f"process {lock.read().strip() or 'unknown'}"
                    report(f"waiting for {who}, which rents for this cluster; kill ends it")
                    time.sleep(LOOK_SECONDS)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def is_busy(self) -> bool:
        """Tell whether some process changes the machines now, or a launch may yet be listed."""
        pending = self.fleet().pending
        if pending and not is_settled(pending, (), time.time()):
            return True
        try:
            with (self._own / "lambda.lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def fleet(self) -> LambdaFleet:
        """Return the fleet of the cluster, to be changed."""
        wanted = self._settings
        systems = (wanted.file_system,) if wanted.file_system else ()
        template = Template(wanted.cluster, wanted.ssh_key, owner(), systems)
        note = self._own / "lambda-launch.json"
        return LambdaFleet(
            self.api,
            template,
            wanted.types,
            self.surroundings,
            note,
            see=lambda found: self.ledger.see(found, time.time()),
        )

    def claim(self, machines: Sequence[Machine]) -> None:
        """Raise PlanError where somebody else has rented machines under this cluster's name."""
        others = {
            one.owner
            for one in machines
            if one.status not in GONE and one.owner not in ("", owner())
        }
        if others and not self._settings.adopt:
            name, whose = self._settings.cluster, ", ".join(sorted(others))
            raise PlanError(
                Problem(
                    f"the machines of cluster {name} were rented by {whose}",
                    expected=f"machines that {owner()} has rented",
                    found=whose,
                    where="cluster_name",
                    fix="choose another cluster_name; or, to work on these machines from here, "
                    "which ends them where they are not fit, set lambda_adopt: true",
                )
            )

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the machines need beside themselves."""
        return Surroundings(self.api, self._settings)


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
