"""The machines of one cluster at Lambda: read from tags, launched for a slot, ended by id."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .fleet import (
    BOOTING,
    READY,
    Machine,
    NoCapacity,
    NotEnded,
    Offer,
    Pending,
    ReplyLost,
)
from .lambda_api import NO_CAPACITY, NOT_FOUND, ApiError, LambdaApi
from .lambda_surroundings import Surroundings
from .rented_fleet import RentedFleet

# The key is refused: no other request is answered either.
DENIED = (401, 403)
# Tags of an instance; keys match ^[a-z][a-z0-9-:]+$.
CLUSTER, SLOT, LAUNCH, SINCE, OWNER, STATE = (
    f"vllm-ansible:{name}" for name in ("cluster", "slot", "launch", "since", "owner", "state")
)


@dataclass(frozen=True, slots=True)
class Template:
    """What all machines of a cluster have in common."""

    cluster: str
    ssh_key: str
    owner: str
    file_systems: Sequence[str] = ()
    image: Mapping[str, str] = field(default_factory=dict)
    # Of the controller's state/, empty before it has one.
    state: str = ""

    def body(
        self, slot: int, offer: Offer, launch: str, now: float, rulesets: Sequence[str]
    ) -> dict[str, Any]:
        """Return the body of a launch."""
        tags = {
            CLUSTER: self.cluster,
            SLOT: str(slot),
            LAUNCH: launch,
            SINCE: str(int(now)),
            OWNER: self.owner,
        }
        if self.state:
            tags[STATE] = self.state
        wanted: dict[str, Any] = {
            "region_name": offer.region,
            "instance_type_name": offer.type,
            "ssh_key_names": [self.ssh_key],
            "name": name(self.cluster, slot),
            "hostname": f"{self.cluster}-{slot}",
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        if self.file_systems:
            wanted["file_system_names"] = list(self.file_systems)
        if rulesets:
            wanted["firewall_rulesets"] = [{"id": one} for one in rulesets]
        if self.image:
            wanted["image"] = dict(self.image)
        return wanted


def name(cluster: str, slot: int) -> str:
    """Return the name of a slot's machine."""
    return f"{cluster}-{slot}"


def tags(listed: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a listed instance."""
    return {one["key"]: one["value"] for one in listed.get("tags") or []}


def cluster_of(listed: Mapping[str, Any]) -> str | None:
    """Return the cluster that a listed instance belongs to, None for one that is not ours."""
    found = tags(listed)
    return found.get(CLUSTER) if found.get(SLOT, "").isdecimal() else None


def slot_of(listed: Mapping[str, Any]) -> int:
    """Return the slot of an instance of ours: by its name, since tags cannot be changed.

    The tag says which slot it was launched for, and counts where somebody gave it another name.
    """
    found = tags(listed)
    named = re.fullmatch(rf"{re.escape(found[CLUSTER])}-(\d+)", str(listed.get("name") or ""))
    return int(named[1] if named else found[SLOT])


def machine(listed: Mapping[str, Any]) -> Machine:
    """Return a listed instance of ours."""
    found = tags(listed)
    since = found.get(SINCE, "")
    status, address = str(listed["status"]), str(listed.get("ip") or "")
    return Machine(
        id=str(listed["id"]),
        slot=slot_of(listed),
        # Up without an address is up for nobody.
        status=BOOTING if status == READY and not address else status,
        type=str(listed["instance_type"]["name"]),
        region=str(listed["region"]["name"]),
        cents_per_hour=int(listed["instance_type"]["price_cents_per_hour"]),
        launch=found.get(LAUNCH, ""),
        since=float(since) if since.isdecimal() else 0.0,
        # Missing until it has them.
        address=address,
        private_address=str(listed.get("private_ip") or ""),
        owner=found.get(OWNER, ""),
        state=found.get(STATE, ""),
    )


class LambdaFleet(RentedFleet):
    """What a cluster has at Lambda, and the two ways to change it.

    `note` is the file that holds a launch from before it is sent until its answer is here; `see`
    is told of every list.
    """

    def __init__(
        self,
        api: LambdaApi,
        template: Template,
        types: Sequence[str],
        surroundings: Surroundings,
        note: Path,
        now: Callable[[], float] = time.time,
        see: Callable[[Sequence[Machine]], None] = lambda _: None,
    ) -> None:
        super().__init__(note, now, see)
        self._api, self._template = api, template
        self._types, self._surroundings = types, surroundings
        self._regions: tuple[str, ...] | None = None

    def machines(self) -> list[Machine]:
        """Return the cluster's machines, ending ones included."""
        listed = self._api.instances()
        found = [machine(one) for one in listed if cluster_of(one) == self._template.cluster]
        return self.shown(found)

    def offers(self) -> list[Offer]:
        """Return types in regions, in order of preference, and where there is room."""
        known = self._api.instance_types()
        if self._regions is None:
            self._regions = self._surroundings.check(known)
        return [
            Offer(
                name,
                region,
                int(known[name]["instance_type"]["price_cents_per_hour"]),
                region in {one["name"] for one in known[name]["regions_with_capacity_available"]},
            )
            for name in self._types
            for region in self._regions
        ]

    def launch(self, slots: Sequence[int], offer: Offer) -> str:
        """Launch a machine and return its id; a note stays behind until it is listed."""
        # Lambda starts one at a time.
        (slot,) = slots
        rulesets = self._surroundings.ready(offer.region)
        # A file system that was just made binds all machines to its region.
        self._regions = None if self._surroundings.changed else self._regions
        pending = Pending(slot, secrets.token_hex(8), self._now())
        self._keep(pending)
        body = self._template.body(slot, offer, pending.launch, pending.at, rulesets)
        try:
            identity = self._api.launch(body)
        except ApiError as refusal:
            # Refused, so nothing was launched.
            self.forget()
            if refusal.code == NO_CAPACITY:
                # Only what this very launch has made: nothing can be in it yet.
                if self._surroundings.leave(offer.region):
                    self._regions = None
                raise NoCapacity(refusal.message) from refusal
            raise
        except ReplyLost:
            self._surroundings.stay()
            # It waited for its turn before it was sent: what may be listed counts from now.
            self._keep_on(replace(pending, at=self._now()))
            raise
        self._keep_on(replace(pending, at=self._now(), machine=identity))
        self._surroundings.stay()
        return identity

    def end(self, machines: Sequence[Machine]) -> None:
        """End machines; raise NotEnded where Lambda refuses. One that is gone is ended."""
        try:
            self._api.terminate([one.id for one in machines])
        except ApiError as refusal:
            if refusal.status in DENIED:
                raise
            # All or none are ended by one request: the one that cannot be must not keep the others.
            self._end_each(machines)
        self._asked_to_end |= dict.fromkeys((one.id for one in machines), self._now())

    def _end_each(self, machines: Sequence[Machine]) -> None:
        refused = {}
        for one in machines:
            try:
                self._api.terminate([one.id])
                self._asked_to_end[one.id] = self._now()
            except ApiError as refusal:
                if refusal.code != NOT_FOUND:
                    refused[one.id] = f"{refusal.message} ({refusal.code})"
        if refused:
            words = "; ".join(f"{one}: {why}" for one, why in refused.items())
            raise NotEnded(f"Lambda does not end {words}")

    def move(self, machine: Machine, slot: int) -> None:
        """Give a machine another slot."""
        self._api.rename(machine.id, name(self._template.cluster, slot))
