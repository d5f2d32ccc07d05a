"""Pods without accelerators beside a cluster: one fills its volume, one sends the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

from .fleet import GONE, Machine, Offer
from .runpod_fleet import NONE, RunpodFleet
from .runpod_pods import FILL, PARTS, is_part
from .runpod_settings import parts

# vCPUs of a pod where the inventory names no type: verification of weights uses several.
CPUS = 8


class CpuFleet(RunpodFleet):
    """The one pod of a part, as a fleet of one machine, whose slot is 0."""

    def machines(self) -> list[Machine]:
        """Return the pod, and others of the part if there are any."""
        listed = self.shown(self._lists.machines())
        self._home = {one.region for one in listed if not is_part(one) and one.status not in GONE}
        slot = PARTS[self._template.part]
        self._seen = [replace(one, slot=0) for one in listed if one.slot == slot]
        return self._seen

    def offers(self) -> list[Offer]:
        """Return types of CPU pods in data centers, and where there is room.

        In the data center of the volume, or of the cluster. A volume that is to be made goes first
        where accelerators can be had now, for it binds them to its data center.
        """
        if self._places is None:
            self._places = self._surroundings.check(self._lists.types())
        if self._living():
            return []
        kinds = self._kinds()
        shelves = {count: self._shelf(count) for count in {parts(one)[0] for one in kinds}}
        offers = [
            Offer(kind, place, self._cents(kind), level != NONE)
            for place in self._ordered(self._places)
            for kind in kinds
            for count, name in (parts(kind),)
            if (level := shelves[count].get(name, {}).get(place))
        ]
        if not offers:
            raise PlanError(_nowhere(kinds, self._places))
        self._refuse_beyond(offers)
        return offers

    @property
    def _count(self) -> int:
        return 1

    def _mounts(self) -> bool:
        """Tell whether it has the volume: who sends the load needs none."""
        return self._template.part == FILL

    def _others_cost(self) -> float:
        return self._lists.others_cost(self._template.part)

    def _shelf(self, count: int) -> dict[str, dict[str, str]]:
        return self._api.cpu_stock(count)

    def _kinds(self) -> tuple[str, ...]:
        """Return the types that the inventory wants, or the catalogue's from the cheapest on."""
        known = self._lists.cpus()
        if wanted := self._settings.cpu_types:
            problems = [
                _unfit(one, known)
                for one in wanted
                for count, name in (parts(one),)
                if name not in known or not _has(known[name], count)
            ]
            if problems:
                raise PlanError(problems)
            return wanted
        fit = sorted(
            (self._lists.price(name), name) for name, one in known.items() if _has(one, CPUS)
        )
        return tuple(f"{CPUS}x {name}" for _, name in fit)

    def _ordered(self, places: Sequence[str]) -> list[str]:
        """Return data centers with the best one first."""
        if self._home:
            return sorted(self._home)
        if len(places) < 2:
            return list(places)
        wanted = self._settings
        product = "POD" if wanted.count == 1 else "CLUSTER"
        shelves = {
            count: self._api.stock(count, product)
            for count in {parts(one)[0] for one in wanted.types}
        }

        def lacks(place: str) -> bool:
            return all(
                shelves[count].get(name, {}).get(place, NONE) == NONE
                for count, name in map(parts, wanted.types)
            )

        return sorted(places, key=lacks)


def _has(flavor: dict[str, Any], count: int) -> bool:
    """Tell whether a flavor comes with so many vCPUs."""
    return int(flavor["vcpu"]["min"]) <= count <= int(flavor["vcpu"]["max"])


def _unfit(kind: str, known: dict[str, dict[str, Any]]) -> Problem:
    _, name = parts(kind)
    if name in known:
        sizes = known[name]["vcpu"]
        return Problem(
            f"RunPod has no CPU pod {kind}",
            expected=f"{sizes['min']} to {sizes['max']} vCPUs of {name}",
            found=kind,
            where="runpod_cpu_types",
            fix="correct the number of vCPUs",
        )
    return Problem(
        f"RunPod has no flavor {name} of CPU pods",
        expected=f"one of {', '.join(sorted(known))}",
        found=name,
        where="runpod_cpu_types",
        fix=close_match(name, known) or "correct it, or leave runpod_cpu_types out",
    )


def _nowhere(kinds: Sequence[str], places: Sequence[str]) -> Problem:
    where = ", ".join(places)
    return Problem(
        f"RunPod offers no CPU pod in {where}",
        expected=f"one of {', '.join(kinds) or 'any type'}",
        found=f"none in {where}",
        where="runpod_cpu_types",
        fix="name other runpod_cpu_types, or set runpod_fill and runpod_load to false: the first "
        "pod with accelerators then fetches the weights",
    )
