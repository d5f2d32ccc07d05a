"""What pods need beside themselves: types and data centers that exist, and a network volume.

A volume is made where it is missing, in the data center of the first launch, and kept at the end
unless the inventory says otherwise: what is in it took hours to fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

from .runpod_api import ApiError, RunpodApi
from .runpod_settings import Settings, parts
from .transport import Unreachable


class Surroundings:
    """The surroundings of one cluster's pods."""

    def __init__(self, api: RunpodApi, settings: Settings) -> None:
        self._api, self._settings = api, settings
        self._made = ""
        self.changed: list[str] = []
        # What became of the volume at the end, in words.
        self.left = ""

    def check(self, known_types: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Return the data centers that pods may be in; raise PlanError with all that is missing."""
        wanted = self._settings
        problems = []
        for one in wanted.types:
            count, kind = parts(one)
            if kind not in known_types:
                problems.append(_unknown("runpod_instance_types", "accelerator", kind, known_types))
            elif count > (most := int(known_types[kind]["maxCount"]["secure"])):
                problems.append(_too_many(one, most))
        centers = self._api.data_centers()
        problems += [
            _unknown("runpod_data_centers", "data center", one, centers)
            for one in wanted.places
            if one not in centers
        ]
        if problems:
            raise PlanError(problems)
        return self._places(centers) if wanted.volume else wanted.places

    def ready(self, place: str) -> str:
        """Return the id of the volume in a data center; empty where there is none.

        Pods that exist can be given none any more, so nothing is made for them.
        """
        found = self.volume() if self._settings.volume else None
        return str(found["id"]) if found and found["dataCenter"] == place else ""

    def make(self, place: str) -> str:
        """Make the volume for a launch in a data center, where it is missing; return its id."""
        wanted = self._settings
        if not wanted.volume:
            return ""
        if not (found := self.ready(place)):
            found = self._made = self._api.create_volume(wanted.volume, place, wanted.volume_gb)
            self.changed.append(
                f"network volume {wanted.volume} ({wanted.volume_gb} GB) in {place}"
            )
        return found

    def stay(self) -> None:
        """Keep the volume: a pod may have it."""
        self._made = ""

    def leave(self) -> None:
        """Delete the volume that was made for a launch which did not come about.

        It would bind the cluster to that data center, and nothing can be in it.
        """
        if self._made:
            self._api.delete_volume(self._made)
            self._made, self.changed = "", []

    def remove(self) -> list[str]:
        """Delete the volume where the inventory says so; the pods have to be gone."""
        wanted = self._settings
        if not wanted.volume:
            return []
        if not wanted.remove_volume:
            self.left = (
                f"network volume {wanted.volume} is kept unless runpod_remove_volume is true"
            )
            # Nothing is to be done: a list that is refused is no failure.
            with suppress(ApiError, Unreachable):
                self.left = self.left if self.volume() else self._gone
            return []
        if not (found := self.volume()):
            self.left = self._gone
            return []
        self._api.delete_volume(str(found["id"]))
        volume = f"network volume {found['name']} in {found['dataCenter']}"
        self.left = f"{volume} is deleted with all that was in it"
        return [volume]

    @property
    def _gone(self) -> str:
        return f"no network volume {self._settings.volume} is listed"

    def volume(self) -> dict[str, Any] | None:
        """Return the volume of that name; of several, for names are not unique, the one wanted."""
        wanted = self._settings
        found = [one for one in self._api.volumes() if one["name"] == wanted.volume]
        order = {place: number for number, place in enumerate(wanted.places)}
        found.sort(key=lambda one: order.get(one["dataCenter"], len(order)))
        return found[0] if found else None

    def _places(self, centers: Mapping[str, Collection[str]]) -> tuple[str, ...]:
        """Return where the volume is, or where it could be made."""
        wanted, found = self._settings, self.volume()
        where = ", ".join(wanted.places)
        if found:
            home = str(found["dataCenter"])
            if home in wanted.places:
                return (home,)
            raise PlanError(
                Problem(
                    f"the network volume {wanted.volume} is in {home}",
                    expected=f"one in {where}: a pod mounts only volumes of its own data center",
                    found=home,
                    where="runpod_volume",
                    fix=f"add {home} to runpod_data_centers, or name another volume",
                )
            )
        if not wanted.volume_gb:
            raise PlanError(
                Problem(
                    f"there is no network volume {wanted.volume}, and no size to make it with",
                    expected="a volume of that name, or runpod_volume_gb",
                    found="neither",
                    where="runpod_volume_gb",
                    fix="set runpod_volume_gb, such as 1024 for the weights of DeepSeek-R1",
                )
            )
        places = tuple(one for one in wanted.places if centers[one])
        if not places:
            raise PlanError(
                Problem(
                    f"no data center of {where} has network volumes",
                    expected="one that has",
                    found=where,
                    where="runpod_data_centers",
                    fix=f"add one of {', '.join(sorted(one for one in centers if centers[one]))}",
                )
            )
        return places


def _unknown(variable: str, what: str, found: str, known: Collection[str]) -> Problem:
    return Problem(
        f"RunPod has no {what} {found}",
        expected=f"one of {', '.join(sorted(known))}",
        found=found,
        where=variable,
        fix=close_match(found, known) or f"correct {variable}",
    )


def _too_many(kind: str, most: int) -> Problem:
    return Problem(
        f"no machine at RunPod has {kind}",
        expected=f"at most {most} of them in one pod",
        found=kind,
        where="runpod_instance_types",
        fix="lower their number, and raise node_count",
    )
