"""The pods of one cluster at RunPod: read from its lists, launched and ended all together."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vllm_ansible.problem import PlanError, Problem

from .fleet import GONE, Machine, NoCapacity, NotEnded, Offer, Pending, ReplyLost
from .rented_fleet import RentedFleet
from .runpod_api import CONFLICT, ApiError, RunpodApi, SpendLimit
from .runpod_lists import Lists
from .runpod_pods import LEFT_BEHIND, group_of, is_part
from .runpod_settings import parts
from .runpod_surroundings import Surroundings
from .runpod_template import Template

# RunPod has no code for it: words of a refusal for want of machines.
CAPACITY = re.compile(r"no longer any|capacity|no (\w+ )*(instances|machines)|not available|stock")
UNPLACED = 400
NONE, PLENTY = "NONE", ("MEDIUM", "HIGH")
# Refusals for want of capacity, where the catalogue shows plenty, until that is not believed.
REFUSALS = 5


class RunpodFleet(RentedFleet):
    """What a cluster has at RunPod, and the two ways to change it.

    `unjudged` tells a machine that serves nobody yet; the rest is as of every fleet.
    """

    def __init__(
        self,
        api: RunpodApi,
        template: Template,
        surroundings: Surroundings,
        note: Path,
        now: Callable[[], float] = time.time,
        see: Callable[[Sequence[Machine]], None] = lambda _: None,
        unjudged: Callable[[Machine], bool] = lambda _: False,
    ) -> None:
        super().__init__(note, now, see)
        self._api, self._template, self._surroundings = api, template, surroundings
        self._settings, self._unjudged = template.settings, unjudged
        self._lists = Lists(api, template.settings.cluster, template.state)
        self._seen: list[Machine] | None = None
        self._places: tuple[str, ...] | None = None
        self._refusals: dict[tuple[str, str], int] = {}
        # Where the cluster is, as a pod beside it sees it.
        self._home: set[str] = set()

    def machines(self) -> list[Machine]:
        """Return the cluster's machines, ending ones included, without pods beside it."""
        self._seen = [one for one in self.shown(self._lists.machines()) if not is_part(one)]
        return self._seen

    def offers(self) -> list[Offer]:
        """Return types in data centers, in order of preference, and where there is room.

        Raise PlanError where pods are lacking to a cluster that exists, or where the account may
        not spend as much: RunPod refuses both in words that say nothing of the kind.
        """
        wanted, known = self._settings, self._lists.types()
        if self._places is None:
            self._places = self._surroundings.check(known)
        # Most types are asked for in the same number: one list shows all of them.
        shelves = {count: self._shelf(count) for count in {parts(one)[0] for one in wanted.types}}
        offers = [
            Offer(kind, place, self._cents(kind), levels.get(place, NONE) != NONE)
            for kind in wanted.types
            for count, name in (parts(kind),)
            for levels in (shelves[count].get(name, {}),)
            for place in self._places
        ]
        living = self._living()
        if living:
            self._refuse_more(living)
        elif not self.pending:
            self._refuse_beyond(offers)
        return offers

    def launch(self, slots: Sequence[int], offer: Offer) -> str:
        """Launch all machines and return the id of what holds them; a note stays till it is listed.

        Raise NoCapacity, ReplyLost, or RunPod's refusal.
        """
        if len(slots) != self._count:
            raise PlanError(_no_more(self._count - len(slots), self._count))
        pending = Pending(slots[0], self._template.launch(), self._now(), count=len(slots))
        volume = self._surroundings.make(offer.region) if self._mounts() else ""
        # One that was just made, or is deleted again, decides anew where pods may be.
        self._places = None
        body = self._template.body(offer, pending.launch, volume)
        self._keep(pending)
        create = self._api.create_pod if self._count == 1 else self._api.create_cluster
        try:
            identity = create(body)
        except ApiError as refusal:
            # Refused, so nothing was launched.
            self.forget()
            self._surroundings.leave()
            raise self._reason(refusal, offer) from refusal
        except ReplyLost:
            self._surroundings.stay()
            # It waited for its turn before it was sent: what may be listed counts from now.
            self._keep_on(replace(pending, at=self._now()))
            raise
        self._keep_on(replace(pending, at=self._now(), machine=identity))
        self._surroundings.stay()
        return identity

    def end(self, machines: Sequence[Machine]) -> None:
        """End machines, each with all of its cluster; raise NotEnded where that is not allowed.

        Pods that RunPod still lists without their cluster are ended one by one.
        """
        groups = {one.group for one in machines if one.group}
        members = [one for one in self._living() if one.group in groups]
        asked = {one.id for one in machines}
        others = [one for one in members if one.id not in asked and one.slot < LEFT_BEHIND]
        if others and not self._settings.replace and not all(map(self._unjudged, members)):
            raise NotEnded(_only_whole(machines, others))
        living = {str(one["id"]) for one in self._lists.clusters}
        refused = []
        for group in sorted(groups):
            if group in living:
                self._api.delete_cluster(group)
        left = [
            one for one in self._lists.pods if (group_of(one) or str(one["id"])) in groups - living
        ]
        for pod in (*left, *({"id": one.id} for one in machines if not one.group)):
            try:
                self._api.delete_pod(str(pod["id"]))
            except ApiError as refusal:
                if refusal.status != CONFLICT:
                    raise
                refused.append(f"pod {pod['id']}: {refusal.detail}")
        self._asked_to_end |= dict.fromkeys((one.id for one in (*machines, *others)), self._now())
        if refused:
            raise NotEnded(f"RunPod does not end {'; '.join(refused)}")

    def move(self, machine: Machine, slot: int) -> None:
        """Refuse: a slot is a pod's rank, and RunPod gives it."""
        raise PlanError(
            Problem(
                f"{machine.id} cannot take slot {slot}",
                expected="no spares: a pod's rank in its cluster is given by RunPod",
                found=f"slot {machine.slot}",
                where="spare_count",
                fix="set spare_count: 0",
            )
        )

    @property
    def _count(self) -> int:
        """How many machines there are to be."""
        return self._settings.count

    def _mounts(self) -> bool:
        """Tell whether pods have the volume, where the inventory names one."""
        return True

    def _others_cost(self) -> float:
        return self._lists.others_cost()

    def _living(self) -> list[Machine]:
        seen = self.machines() if self._seen is None else self._seen
        return [one for one in seen if one.status not in GONE]

    def _cents(self, kind: str) -> int:
        """Return what a pod of a type costs, in US cents an hour."""
        count, name = parts(kind)
        return round(100 * count * self._lists.price(name))

    def _shelf(self, count: int) -> dict[str, dict[str, str]]:
        """Return in RunPod's words how much room there is now, by accelerator and data center."""
        return self._api.stock(count, "POD" if self._settings.count == 1 else "CLUSTER")

    def _refuse_more(self, living: Sequence[Machine]) -> None:
        """Raise PlanError where a cluster has fewer pods than are wanted: it gets no more."""
        have = {one.slot for one in living if one.slot < LEFT_BEHIND}
        if have and len(have & set(range(self._settings.count))) < self._settings.count:
            raise PlanError(_no_more(len(have), self._settings.count))

    def _refuse_beyond(self, offers: Sequence[Offer]) -> None:
        """Raise PlanError where the account may not spend what any offer costs."""
        limit, count = self._settings.spend_limit, self._count
        others = self._others_cost()
        cheapest = min(one.cents_per_hour for one in offers) * count / 100
        if not limit or others + cheapest <= limit:
            return
        beside = f", and pods that run on the account cost ${others:.2f}/h" if others else ""
        over = "beyond the account's spend limit"
        raise PlanError(
            Problem(
                f"{count} pods would cost ${cheapest:.2f}/h{beside}: {over}",
                expected=f"at most ${limit:.2f}/h in all; RunPod refuses more as if it had no room",
                found=f"${others + cheapest:.2f}/h",
                where="runpod_spend_limit",
                fix="have RunPod raise the account's spend limit and set runpod_spend_limit to it, "
                "or end other pods, which playbooks/orphans.yml lists",
            )
        )

    def _reason(self, refusal: ApiError, offer: Offer) -> Exception:
        """Return what a refused launch means: no room, a limit that looks like it, or its words."""
        if refusal.status != UNPLACED:
            return refusal
        count, name = parts(offer.type)
        level = self._shelf(count).get(name, {}).get(offer.region, NONE)
        if level == NONE:
            return NoCapacity(refusal.detail)
        if not CAPACITY.search(refusal.detail.lower()):
            return refusal
        place = (offer.type, offer.region)
        self._refusals[place] = self._refusals.get(place, 0) + (level in PLENTY)
        if self._refusals[place] < REFUSALS:
            return NoCapacity(refusal.detail)
        told = (
            f"{refusal.detail} ({REFUSALS} times, while the catalogue shows {level} stock of "
            f"{offer.type} in {offer.region})"
        )
        return SpendLimit(refusal.status, refusal.title, told, refusal.errors)


def _no_more(have: int, count: int) -> Problem:
    return Problem(
        f"the cluster has {have} pods, {count} are wanted, and RunPod adds none to a cluster",
        expected=f"node_count: {have}, or no cluster yet",
        found=f"node_count: {count}",
        where="node_count",
        fix="run playbooks/teardown.yml, which gives the cluster back, then site.yml",
    )


def _only_whole(machines: Sequence[Machine], others: Sequence[Machine]) -> str:
    slots = ", ".join(str(one.slot) for one in machines)
    rest = ", ".join(str(one.slot) for one in others)
    return (
        f"the pod of slot {slots} is to be replaced, and RunPod ends a cluster only as a whole, "
        f"slot {rest} with it: allow that with -e runpod_replace_cluster=true, or run "
        "playbooks/teardown.yml"
    )
