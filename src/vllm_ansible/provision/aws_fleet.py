"""The machines of one cluster at AWS: launched all together, found by tags, ended by id."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import files
from .aws_api import NO_CAPACITY, AwsApi, AwsError
from .aws_machines import LAUNCH, ORDINARY, SLOT, machine
from .aws_request import body
from .aws_settings import Settings
from .aws_surroundings import Surroundings
from .fleet import (
    ENDED,
    ENDING,
    ENDING_SECONDS,
    GONE,
    READY,
    Machine,
    NoCapacity,
    NotEnded,
    Offer,
    Pending,
    ReplyLost,
    is_known,
)

# A zone that had no room is not asked again before.
EMPTY_SECONDS = 60.0
# A launch of so long ago is not asked for again: its machines may have come and gone.
AGAIN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """A launch as it was sent: for which slots, where, and all that EC2 was asked."""

    slots: tuple[int, ...]
    zone: str
    wanted: Mapping[str, Any]


class AwsFleet:
    """What a cluster has at AWS, and the ways to change it.

    `note` is the file that holds a launch from before it is sent until it is listed; `look` lists
    the cluster's machines as `aws_machines.plain` has them; `see` is given every list.
    """

    def __init__(
        self,
        api: AwsApi,
        settings: Settings,
        surroundings: Surroundings,
        note: Path,
        look: Callable[[], list[dict[str, Any]]],
        now: Callable[[], float] = time.time,
        see: Callable[[Sequence[Machine]], None] = lambda _: None,
    ) -> None:
        self._api, self._settings, self._surroundings = api, settings, surroundings
        self._note, self._look, self._now, self._see = note, look, now, see
        # With all that was asked: the same token with other words would be refused.
        self._request = note.with_name(note.name.replace("launch", "request"))
        self._asked_to_end: dict[str, float] = {}
        self._empty: dict[tuple[str, str], float] = {}
        self._listed: list[dict[str, Any]] = []
        self._launched: set[str] = set()

    def machines(self) -> list[Machine]:
        """Return the cluster's machines, ending ones included."""
        late = self._now() - ENDING_SECONDS
        ending = {one for one, at in self._asked_to_end.items() if at > late}
        self._listed = self._look()
        wanted = self._settings
        found = [machine(one, wanted.public_address, wanted.prices) for one in self._listed]
        found = [
            replace(one, status=ENDING) if one.id in ending and one.status != ENDED else one
            for one in found
        ]
        self._see(found)
        return found

    def offers(self) -> list[Offer]:
        """Return types in zones, in order of preference; only a launch tells if there is room."""
        checked, now = self._surroundings.checked(), self._now()
        return [
            Offer(
                kind,
                zone,
                self._settings.prices.get(kind, 0),
                now - self._empty.get((kind, zone), 0.0) >= EMPTY_SECONDS,
            )
            for kind in self._settings.types
            for zone in self._settings.zones
            if (kind, zone) in checked.offered
        ]

    def launch(self, slots: Sequence[int], offer: Offer) -> str:
        """Launch a machine for each slot, all or none; return the id of the first.

        A note stays behind until all are listed.
        """
        self._stillborn(offer)
        made = len(self._surroundings.changed)
        place = self._surroundings.ready(offer.region)
        group = self._surroundings.placement(offer.region, offer.type)
        pending = Pending(slots[0], secrets.token_hex(16), self._now(), count=len(slots))
        tags = self._surroundings.tags
        checked = self._surroundings.checked()
        wanted = body(self._settings, checked, place, group, tags, slots, offer, pending)
        files.write(self._request, json.dumps({"slots": list(slots), "wanted": wanted}))
        self._keep(pending)
        fresh = len(self._surroundings.changed) > made
        return self._send(wanted, pending, fresh, (offer.type, offer.region))

    def _stillborn(self, offer: Offer) -> None:
        """Refuse to launch again where machines of this run ended at once, without being ended.

        EC2 accepts launches that come to nothing, as where a root volume cannot be decrypted, and
        says why only of the machine. To launch another one then would go on for ever.
        """
        for one in self._listed:
            mine = one["tags"].get(LAUNCH) in self._launched
            if not mine or one["status"] not in GONE or one["id"] in self._asked_to_end:
                continue
            if one["why"].partition(".")[2] in NO_CAPACITY:
                self._launched.discard(one["tags"][LAUNCH])
                self._empty[offer.type, offer.region] = self._now()
                raise NoCapacity(one["words"])
            if one["why"] and one["why"] not in ORDINARY:
                words = f"{one['id']} ended as soon as it was launched: {one['words']}"
                raise AwsError("run_instances", one["why"], words)

    def again(self, machines: Sequence[Machine]) -> None:
        """Ask for a launch again whose answer never came, with the same token and words.

        So it is known at once whether there are machines; those that were launched are only named.
        Not where the inventory has changed since: then they are looked for in lists.
        """
        pending = self.pending
        if pending is None or pending.machine or is_known(pending, machines):
            return
        request = self._kept()
        if request is None or self._now() - pending.at > AGAIN_SECONDS:
            return
        if not self._is_wanted(request, machines):
            return
        with suppress(NoCapacity, ReplyLost):
            self._send(dict(request.wanted), pending, False, (_kind(request), request.zone))

    def equip(self, machines: Sequence[Machine]) -> None:
        """Give machines what they get only once they exist: an address of the internet."""
        self.again(machines)
        if not self._settings.public_address:
            return
        ending = {one.id for one in machines if one.status in GONE}
        for one in self._listed:
            up = one["status"] == READY and one["id"] not in ending
            if up and one["interface"] and not one["public_address"]:
                self._surroundings.give_address(one["id"], one["interface"])

    def end(self, machines: Sequence[Machine]) -> None:
        """End machines; raise NotEnded where AWS refuses. One that is gone is ended."""
        try:
            self._api.ask("terminate_instances", InstanceIds=[one.id for one in machines])
            self._asked_to_end |= dict.fromkeys((one.id for one in machines), self._now())
        except AwsError:
            # One that cannot be ended must not keep the others.
            self._end_each(machines)

    def _end_each(self, machines: Sequence[Machine]) -> None:
        refused = []
        for one in machines:
            try:
                self._api.ask("terminate_instances", InstanceIds=[one.id])
                self._asked_to_end[one.id] = self._now()
            except AwsError as error:
                if error.code == "UnauthorizedOperation":
                    raise
                if not error.is_gone:
                    refused.append(f"{one.id}: {error.message} ({error.code})")
        if refused:
            raise NotEnded(f"AWS does not end {'; '.join(refused)}")

    def move(self, machine: Machine, slot: int) -> None:
        """Give a machine another slot."""
        self._api.tag([machine.id], {SLOT: str(slot)})

    @property
    def pending(self) -> Pending | None:
        """The launch that is not listed yet, by this run or one before it."""
        try:
            return Pending(**json.loads(self._note.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def forget(self) -> None:
        """Let go of the note."""
        for path in (self._note, self._request):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _send(
        self, wanted: Mapping[str, Any], pending: Pending, fresh: bool, offer: tuple[str, str]
    ) -> str:
        """Ask EC2; a refusal launches nothing, and where none is sure the note stays."""
        try:
            (first, *_) = self._api.launch(wanted, fresh)
        except AwsError as refusal:
            if refusal.decides:
                self.forget()
            if refusal.code in NO_CAPACITY:
                self._empty[offer] = self._now()
                raise NoCapacity(refusal.message) from refusal
            raise
        self._launched.add(pending.launch)
        with suppress(OSError):
            # What was launched exists, whether there is room for it here or not.
            self._keep(replace(pending, at=self._now(), machine=first))
        return first

    def _is_wanted(self, request: Request, machines: Sequence[Machine]) -> bool:
        """Tell whether the inventory would still ask for just that."""
        wanted = self._settings
        kind = _kind(request)
        price = wanted.prices.get(kind, 0)
        cost = price * len(request.slots) + sum(one.cents_per_hour for one in machines)
        return (
            max(request.slots) < wanted.count + wanted.spares
            and (kind in wanted.types and request.zone in wanted.zones)
            and (wanted.max_cents_per_hour is None or cost <= wanted.max_cents_per_hour)
        )

    def _keep(self, pending: Pending) -> None:
        files.write(self._note, json.dumps(asdict(pending)))

    def _kept(self) -> Request | None:
        try:
            content = json.loads(self._request.read_text())
            wanted = dict(content["wanted"])
            subnet = wanted["NetworkInterfaces"][0]["SubnetId"]
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        zones = {one: zone for zone, one in self._surroundings.checked().subnets.items()}
        return Request(tuple(content["slots"]), zones.get(subnet, ""), wanted)


def _kind(request: Request) -> str:
    return str(request.wanted["InstanceType"])
