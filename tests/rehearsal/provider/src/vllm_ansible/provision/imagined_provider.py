"""A cloud that nobody runs: its account is a file of the cluster's state."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from . import files
from .cluster import Cluster
from .fleet import ENDED, READY, Machine, Offer
from .orphans import Orphan
from .provider import Provider
from .rented_fleet import RentedFleet

READ = ("cluster_name", "node_count", "spare_count")


@dataclass(frozen=True)
class Settings:
    """What an inventory says of it."""

    cluster: str
    count: int
    spares: int = 0
    types: tuple[str, ...] = ("one",)
    adopt: bool = False
    owner: str = ""
    max_cents_per_hour: int | None = None
    max_cents: int | None = None
    max_seconds: float | None = None

    def pinned(self) -> Mapping[str, str]:
        return {}

    def ready(self) -> None:
        return


class Surroundings:
    """Machines need nothing beside themselves."""

    changed: ClassVar[list[str]] = []

    def ready(self, place: str) -> None:
        del place

    def remove(self) -> list[str]:
        return []


class Account:
    """What the cloud knows."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def machines(self) -> list[Machine]:
        try:
            return [Machine(**one) for one in json.loads(self._file.read_text())]
        except FileNotFoundError:
            return []

    def keep(self, machines: Sequence[Machine]) -> None:
        files.write(self._file, json.dumps([asdict(one) for one in machines]))


class Fleet(RentedFleet):
    """Machines that are there as soon as they are asked for."""

    def __init__(self, cluster: ImaginedCluster) -> None:
        super().__init__(cluster.note, time.time, cluster.see)
        self._cluster, self._account = cluster, cluster.api

    def machines(self) -> list[Machine]:
        return self.shown(self._account.machines())

    def offers(self) -> list[Offer]:
        return [Offer("one", "here", 100, True)]

    def launch(self, slots: Sequence[int], offer: Offer) -> str:
        made = [
            Machine(
                f"i-{slot}",
                slot,
                READY,
                offer.type,
                offer.region,
                offer.cents_per_hour,
                launch=f"launch-{slot}",
                since=time.time(),
                address=f"127.0.0.{slot + 1}",
                state=self._cluster.state,
            )
            for slot in slots
        ]
        self._account.keep([*self._account.machines(), *made])
        return made[0].id

    def end(self, machines: Sequence[Machine]) -> None:
        ended = {one.id for one in machines}
        self._account.keep([one for one in self._account.machines() if one.id not in ended])

    def move(self, machine: Machine, slot: int) -> None:
        raise NotImplementedError(ENDED)


class ImaginedCluster(Cluster):
    """One cluster of it."""

    name = "imagined"
    kept = tuple(one.name for one in fields(Machine))
    surroundings = Surroundings()

    @property
    def api(self) -> Account:
        return Account(self._file("account.json"))

    def listed(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.api.machines()]

    def read(self, listed: Sequence[Mapping[str, Any]]) -> list[Machine]:
        return [Machine(**one) for one in listed]

    def fleet(self) -> Fleet:
        return Fleet(self)

    def orphans(self) -> list[Orphan]:
        return []

    def end_orphans(self, identities: Sequence[str]) -> set[str]:
        del identities
        return set()


def settings(said: Mapping[str, Any], where: str) -> Settings:
    """Return what an inventory says."""
    del where
    return Settings(str(said["cluster_name"]), int(said["node_count"]))


PROVIDER = Provider(
    name="imagined",
    title="Imagined",
    read=READ,
    settings=settings,
    cluster=ImaginedCluster,
    errors=(ConnectionError,),
    refusal=lambda error: {"msg": str(error)},
    devices_of=lambda _: None,
    user="nobody",
    places="",
    variables=lambda _: {"ansible_connection": "local"},
)
