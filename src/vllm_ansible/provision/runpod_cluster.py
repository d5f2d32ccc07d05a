"""One cluster at RunPod: the API in its turn, and its pods."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from .clock import Clock
from .cluster import Cluster
from .fleet import Machine
from .orphans import Orphan
from .runpod_api import CONFLICT, ApiError, RunpodApi
from .runpod_fleet import RunpodFleet
from .runpod_lists import Lists
from .runpod_orphans import orphans
from .runpod_settings import Settings
from .runpod_surroundings import Surroundings
from .runpod_template import Template


class RunpodCluster(Cluster):
    """The clock belongs to the API key, for it is the key's requests that RunPod counts."""

    name = "runpod"
    # What is kept is what was read: a listed pod's environment may hold secrets.
    kept = tuple(one.name for one in fields(Machine))

    def __init__(self, settings: Settings, state: Path) -> None:
        super().__init__(settings, state)
        self._settings = settings

    @cached_property
    def api(self) -> RunpodApi:
        """The API, asked with the inventory's key."""
        key = self._settings.key()
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        clock = Clock(self._state / ".runpod" / name, self._settings.intervals)
        return RunpodApi(key, clock, self._settings.endpoint)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the pods need beside themselves."""
        return Surroundings(self.api, self._settings)

    def listed(self) -> list[dict[str, Any]]:
        """Return the cluster's machines, as they are kept."""
        return [asdict(one) for one in self._lists().machines()]

    def read(self, listed: Sequence[Mapping[str, Any]]) -> list[Machine]:
        """Return the cluster's machines."""
        return [Machine(**one) for one in listed]

    def fleet(self) -> RunpodFleet:
        """Return the machines as they are launched and ended."""
        template = Template(self._settings, self._owner, self.state)
        return RunpodFleet(
            self.api,
            template,
            self.surroundings,
            self.note,
            see=self.see,
            unjudged=self.unjudged,
        )

    def orphans(self) -> list[Orphan]:
        """Return every cluster, pod and volume that is none of this cluster's."""
        api = self.api
        return orphans(self._lists(), api.volumes(), api.volume_bills(), self._settings)

    def end_orphans(self, identities: Sequence[str]) -> set[str]:
        """End clusters, pods and volumes by id; a pod that RunPod does not end is not ended."""
        clusters = {str(one["id"]) for one in self.api.clusters()}
        volumes = {str(one["id"]) for one in self.api.volumes()}
        ended = set()
        for one in sorted(identities):
            try:
                if one in clusters:
                    self.api.delete_cluster(one)
                elif one in volumes:
                    self.api.delete_volume(one)
                else:
                    self.api.delete_pod(one)
            except ApiError as refusal:
                if refusal.status != CONFLICT:
                    raise
            else:
                ended.add(one)
        return ended

    def _lists(self) -> Lists:
        return Lists(self.api, self._settings.cluster, self.state)
