"""One cluster at Lambda: the API in its turn, and its machines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .clock import Clock
from .cluster import Cluster
from .fleet import Machine
from .lambda_api import LambdaApi
from .lambda_fleet import LambdaFleet, Template, cluster_of, machine
from .lambda_orphans import orphans
from .lambda_settings import Settings
from .lambda_surroundings import Surroundings
from .orphans import Orphan


class LambdaCluster(Cluster):
    """The clock belongs to the API key, for it is the key's requests that Lambda counts."""

    name = "lambda"
    kept = (
        *("id", "name", "ip", "private_ip", "status", "hostname", "region", "instance_type"),
        *("tags", "file_system_mounts", "firewall_rulesets"),
    )

    def __init__(self, settings: Settings, state: Path) -> None:
        super().__init__(settings, state)
        self._settings = settings

    @cached_property
    def api(self) -> LambdaApi:
        """The API, asked with the inventory's key."""
        key = self._settings.key()
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        clock = Clock(self._state / ".lambda" / name, self._settings.intervals)
        return LambdaApi(key, clock, self._settings.endpoint)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the machines need beside themselves."""
        return Surroundings(self.api, self._settings)

    def listed(self) -> list[dict[str, Any]]:
        """Return all instances of the account."""
        return self.api.instances()

    def read(self, listed: Sequence[Mapping[str, Any]]) -> list[Machine]:
        """Return the cluster's machines."""
        return [machine(one) for one in listed if cluster_of(one) == self._settings.cluster]

    def fleet(self) -> LambdaFleet:
        """Return the machines as they are launched and ended."""
        wanted = self._settings
        systems = (wanted.file_system,) if wanted.file_system else ()
        template = Template(wanted.cluster, wanted.ssh_key, self._owner, systems, state=self.state)
        return LambdaFleet(
            self.api,
            template,
            wanted.types,
            self.surroundings,
            self.note,
            see=self.see,
        )

    def orphans(self) -> list[Orphan]:
        """Return every instance that is no machine of a slot of this cluster."""
        return orphans(self.api.instances(), self._settings)

    def end_orphans(self, identities: Sequence[str]) -> set[str]:
        """End instances by id."""
        return set(self.api.terminate(sorted(identities)))
