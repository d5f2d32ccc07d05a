"""One cluster at RunPod: the API in its turn, and its pods."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from . import files
from .clock import Clock
from .cluster import Cluster
from .convergence import Fleet
from .fleet import GONE, Machine, is_settled
from .orphans import Orphan
from .runpod_api import CONFLICT, ApiError, RunpodApi
from .runpod_cpu import CpuFleet
from .runpod_fleet import RunpodFleet
from .runpod_lists import Lists
from .runpod_orphans import orphans
from .runpod_pods import FILL, PARTS, is_part
from .runpod_settings import Settings
from .runpod_surroundings import Surroundings
from .runpod_template import Template

# Which volume was filled, and with what.
FILLED = "filled.json"


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
        return self._fleet(RunpodFleet, "", self.note)

    def part(self, name: str) -> RunpodFleet:
        """Return the pod of a part beside the cluster, as a fleet of one."""
        return self._fleet(CpuFleet, name, self._file(f"launch-{name}.json"))

    def fleets(self) -> list[Fleet]:
        """Return the machines, and the pod of each part beside them."""
        return [self.fleet(), *map(self.part, PARTS)]

    def _fleet(self, kind: type[RunpodFleet], part: str, note: Path) -> RunpodFleet:
        template = Template(self._settings, self._owner, self.state, part)
        return kind(
            *(self.api, template, self.surroundings, note), see=self.see, unjudged=self.unjudged
        )

    def needless(self, part: str, holds: str) -> str:
        """Return why the volume is not to be filled now: it is, or accelerators are paid for."""
        if part != FILL or self.part(part).pending:
            return ""
        listed = self.machines()
        living = [one for one in listed if one.status not in GONE]
        if any(one.slot == PARTS[part] for one in living):
            return ""
        name, launch = self._settings.volume, self.fleet().pending
        if launch and not is_settled(launch, listed, time.time()):
            return (
                f"network volume {name} is filled by the pods, whose launch RunPod does not list "
                "yet"
            )
        if any(not is_part(one) for one in living):
            return f"network volume {name} is filled by the pods, which are rented already"
        kept, volume = self._filled(), self.surroundings.volume()
        if volume and kept.get("volume") == volume["id"] and kept.get("holds") == holds:
            return f"network volume {name} in {volume['dataCenter']} was filled at {kept['at']}"
        return ""

    def finished(self, part: str, holds: str) -> str:
        """Keep what the volume holds; return it in words."""
        if part != FILL or not (volume := self.surroundings.volume()):
            return ""
        at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        kept = {"volume": volume["id"], "holds": holds, "at": at}
        files.write(self._file(FILLED), json.dumps(kept))
        return f"network volume {volume['name']} in {volume['dataCenter']} is filled"

    def _filled(self) -> dict[str, str]:
        try:
            return {str(k): str(v) for k, v in json.loads(self._file(FILLED).read_text()).items()}
        except (OSError, ValueError, AttributeError):
            return {}

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
