"""What instances need beside themselves: a public key, a file system, a firewall.

The key has to be there, for only its owner has the other half. A file system is made where it is
missing, in the region of the first machine, and kept at the end; the firewall ruleset is the
cluster's own, named after it, and goes with it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

from .lambda_api import LambdaApi
from .lambda_settings import Settings

FILE_SYSTEM = "file system"


class Surroundings:
    """The surroundings of one cluster's machines."""

    def __init__(self, api: LambdaApi, settings: Settings) -> None:
        self._api, self._settings = api, settings
        self._ready: dict[str, list[str]] = {}
        self._made: str | None = None
        self.changed: list[str] = []

    def check(self, known_types: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the regions that machines may be in; raise PlanError with all that is missing."""
        wanted = self._settings
        problems = [
            _unknown("lambda_instance_types", one, known_types)
            for one in wanted.types
            if one not in known_types
        ]
        known_regions = self._api.regions()
        problems += [
            _unknown("lambda_regions", one, known_regions)
            for one in wanted.regions
            if one not in known_regions
        ]
        keys = [one["name"] for one in self._api.ssh_keys()]
        if wanted.ssh_key not in keys:
            problems.append(_unknown("lambda_ssh_key_name", wanted.ssh_key, keys))
        regions = wanted.regions
        home = self._file_system_region() if wanted.file_system else None
        if home is not None:
            regions = tuple(one for one in wanted.regions if one == home)
            if not regions:
                problems.append(
                    Problem(
                        f"the file system {wanted.file_system} is in {home}",
                        expected=f"one in {' or '.join(wanted.regions)}: an instance mounts only "
                        "file systems of its own region",
                        found=home,
                        where="lambda_filesystem",
                        fix=f"add {home} to lambda_regions, or name another file system",
                    )
                )
        if problems:
            raise PlanError(problems)
        return regions

    def ready(self, region: str) -> list[str]:
        """Make what is missing in a region; return the ids of the firewall rulesets."""
        if region not in self._ready:
            self._ready[region] = self._make(region)
        return self._ready[region]

    def stay(self) -> None:
        """Keep the file system: a machine may have it."""
        self._made = None

    def leave(self, region: str) -> bool:
        """Take back the file system that was made for a region which has no machine after all.

        It would bind the cluster to that region. Return whether there was one.
        """
        if self._made is None:
            return False
        self._api.delete_file_system(self._made)
        self._made = None
        self._ready.pop(region, None)
        self.changed = [one for one in self.changed if not one.startswith(FILE_SYSTEM)]
        return True

    def remove(self) -> list[str]:
        """Remove the firewall rulesets of the cluster; its machines have to be gone."""
        names = []
        for one in self._mine():
            self._api.delete_ruleset(str(one["id"]))
            names.append(f"{one['name']} in {one['region']['name']}")
        return names

    @property
    def ruleset_name(self) -> str:
        """Name of the cluster's firewall ruleset."""
        return f"vllm-ansible-{self._settings.cluster}"

    def rules(self) -> list[dict[str, Any]]:
        """Return what may come in from outside; peers talk over private addresses."""
        return [
            {
                "protocol": "tcp",
                "port_range": [22, 22],
                "source_network": source,
                "description": "SSH from the controller",
            }
            for source in self._settings.ssh_from
        ]

    def _make(self, region: str) -> list[str]:
        wanted = self._settings
        if wanted.file_system and self._file_system_region() is None:
            made = self._api.create_file_system(wanted.file_system, region)
            self._made = str(made["id"])
            self.changed.append(f"{FILE_SYSTEM} {wanted.file_system} in {region}")
        rules = self.rules()
        for one in self._mine():
            if one["region"]["name"] == region:
                if _plain(one["rules"]) != _plain(rules):
                    self._api.change_ruleset(str(one["id"]), rules)
                    self.changed.append(f"firewall rules of {one['name']}")
                return [str(one["id"])]
        ruleset = self._api.create_ruleset(self.ruleset_name, region, rules)
        self.changed.append(f"firewall ruleset {self.ruleset_name} in {region}")
        return [str(ruleset["id"])]

    def _mine(self) -> list[dict[str, Any]]:
        return [one for one in self._api.rulesets() if one["name"] == self.ruleset_name]

    def _file_system_region(self) -> str | None:
        """Return the region of the file system, None where there is none of that name."""
        for one in self._api.file_systems():
            if one["name"] == self._settings.file_system:
                return str(one["region"]["name"])
        return None


def _unknown(variable: str, found: str, known: Mapping[str, Any] | Sequence[str]) -> Problem:
    names = sorted(known)
    return Problem(
        f"Lambda knows no {variable.removeprefix('lambda_').rstrip('s').replace('_', ' ')} {found}",
        expected=f"one of {', '.join(names)}" if names else "one that exists; there is none",
        found=found,
        where=variable,
        fix=close_match(found, names) or f"correct {variable}",
    )


def _network(text: str) -> str:
    """Return a network as the API may list it: one address is a network of /32 too."""
    return str(ipaddress.ip_network(text, strict=False))


def _plain(rules: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return rules in a form in which equal ones are equal."""
    return sorted(
        (one["protocol"], tuple(one.get("port_range") or ()), _network(one["source_network"]))
        for one in rules
    )
