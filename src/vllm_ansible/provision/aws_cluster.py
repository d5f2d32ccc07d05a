"""One cluster at AWS: its machines, what they need, and what an account pays for beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .aws_api import AwsApi, AwsError, Unreachable, named
from .aws_fleet import AwsFleet
from .aws_machines import CLUSTER, KEPT, block_end, cluster_of, instances, machine
from .aws_orphans import end_orphans, orphans
from .aws_settings import BLOCK, Settings
from .aws_surroundings import Surroundings
from .aws_words import words
from .cluster import Cluster
from .fleet import Machine
from .orphans import Orphan


class AwsCluster(Cluster):
    """EC2 is asked for what carries the cluster's tag alone."""

    name = "aws"
    kept = KEPT

    def __init__(self, settings: Settings, state: Path) -> None:
        super().__init__(settings, state)
        self._settings = settings
        # The regions in which orphans were looked for.
        self._looked_at: list[AwsApi] = []

    @cached_property
    def api(self) -> AwsApi:
        """EC2's API, asked with the credentials of the usual chain."""
        return AwsApi(self._settings.region, self._settings.profile)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What the machines need beside themselves."""
        return Surroundings(self.api, self._settings, lambda: self.state)

    def listed(self) -> list[dict[str, Any]]:
        """Return the cluster's machines, those that have ended within the last hour among them."""
        found = instances(self.api, [named(f"tag:{CLUSTER}", self._settings.cluster)])
        if found and self._settings.market == BLOCK:
            ends_at = block_end(self.api, self._settings.reservation)
            found = [{**one, "ends_at": ends_at} for one in found]
        return found

    def read(self, listed: Sequence[Mapping[str, Any]]) -> list[Machine]:
        """Return the cluster's machines."""
        wanted = self._settings
        return [
            machine(one, wanted.public_address, wanted.prices)
            for one in listed
            if cluster_of(one) == wanted.cluster
        ]

    @cached_property
    def _fleet(self) -> AwsFleet:
        return AwsFleet(
            self.api,
            self._settings,
            self.surroundings,
            self.note,
            lambda: [one for one in self.listed() if cluster_of(one) == self._settings.cluster],
            see=self.see,
        )

    def fleet(self) -> AwsFleet:
        """Return the machines as they are launched and ended."""
        return self._fleet

    def equip(self, machines: Sequence[Machine]) -> None:
        """Ask again for a launch without an answer, and give machines their addresses."""
        self._fleet.equip(machines)

    def orphans(self) -> list[Orphan]:
        """Return what the account's regions hold and no machine of a slot of this cluster needs.

        Policies often deny all regions but one: of those nothing is known, which `unseen` says.
        """
        found = orphans(self.api, self._settings)
        self._looked_at, self.unseen = [self.api], []
        # The cluster is in one region: in no other one it has a slot.
        elsewhere = replace(self._settings, count=0, spares=0)
        for region in self._other_regions():
            api = AwsApi(region, self._settings.profile)
            try:
                found += orphans(api, replace(elsewhere, region=region))
                self._looked_at.append(api)
            except (AwsError, Unreachable) as refused:
                self.unseen.append(f"{region}: {words(refused)['msg']}")
        return found

    def end_orphans(self, identities: Sequence[str]) -> set[str]:
        """End or remove what was found, by id."""
        ending: set[str] = set()
        for api in self._looked_at:
            ending |= end_orphans(api, identities)
        return ending

    def _other_regions(self) -> list[str]:
        """Return the regions that the account has enabled, without the cluster's own."""
        try:
            listed = {str(one["RegionName"]) for one in self.api.all("describe_regions", "Regions")}
        except (AwsError, Unreachable) as refused:
            self.unseen.append(f"other regions: {words(refused)['msg']}")
            return []
        return sorted(listed - {self._settings.region})
