"""An account of Lambda's cloud: what exists in it, what it refuses, and what becomes of a launch.

Nothing here speaks HTTP; `lambda_cloud.py` serves it. Times are seconds of the clock that it is
given. An instance boots, then is active or unhealthy; one that was ended is listed as terminating
for a while and then not at all, as in the real one.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .lambda_late import LateList
from .lambda_parts import (
    Faults,
    Machines,
    NoMachines,
    Refusal,
    Type,
    check_names,
    invalid,
    missing,
    no_capacity,
    quota_exceeded,
)

FILE_SYSTEM = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]*")
MOUNT = re.compile(r"(/home|/lambda/nfs|/data)[//a-zA-Z0-9-]*")
AVAILABLE = {
    name: {"available": True}
    for name in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")
}


class Account:
    """Everything that one key can see."""

    def __init__(
        self,
        types: list[Type],
        machines: Machines | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.types = {one.name: one for one in types}
        self.machines = machines or NoMachines()
        self.faults = Faults()
        self.instances: dict[str, dict[str, Any]] = {}
        self.file_systems: dict[str, dict[str, Any]] = {}
        self.ssh_keys: dict[str, dict[str, Any]] = {}
        self.rulesets: dict[str, dict[str, Any]] = {}
        self.global_rules: list[dict[str, Any]] = []
        self._now = now
        self._due: dict[str, tuple[float, str]] = {}
        self._late = LateList(now)

    def list_types(self) -> dict[str, Any]:
        """Return types and where they can be had at the moment."""
        return {
            one.name: {
                "instance_type": one.described(),
                "regions_with_capacity_available": [
                    _region(name) for name, left in sorted(one.left.items()) if left > 0
                ],
            }
            for one in self.types.values()
        }

    def list_regions(self) -> list[dict[str, str]]:
        """Return the regions, whether there is room in them or not."""
        return [
            _region(one) for one in sorted({r for kind in self.types.values() for r in kind.left})
        ]

    def list_instances(self) -> list[dict[str, Any]]:
        """Return the instances as they are by now."""
        now = self._now()
        for identity, (at, status) in list(self._due.items()):
            if now < at:
                continue
            del self._due[identity]
            if status == "terminated":
                del self.instances[identity]
            else:
                self.instances[identity]["status"] = status
        return list(self.instances.values())

    def listed(self) -> list[dict[str, Any]]:
        """Return the instances as the list shows them, which may lag behind."""
        return self._late.show(self.list_instances(), self.faults.listing_seconds)

    def instance(self, identity: str) -> dict[str, Any]:
        """Return one instance."""
        self.list_instances()
        if identity not in self.instances:
            raise missing("Specified instance")
        return self.instances[identity]

    def rename(self, identity: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change the name of an instance."""
        found = self.instance(identity)
        found.update({key: changes[key] for key in ("name",) if key in changes})
        return found

    def launch(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Launch one instance, or refuse in the order in which the real one was seen to."""
        kind = self.types.get(wanted["instance_type_name"])
        if kind is None or wanted["region_name"] not in kind.left:
            raise invalid("Specified instance type or region does not exist.")
        keys = wanted["ssh_key_names"]
        if len(keys) != 1:
            raise invalid("Exactly one SSH key must be specified.")
        known = {one["name"] for one in self.ssh_keys.values()}
        if keys[0] not in known:
            raise missing("Specified SSH key")
        mounts = self._mounts(wanted)
        rulesets = self._rulesets_of(wanted)
        check_names(wanted)
        living = [one for one in self.list_instances() if one["status"] != "terminating"]
        if self.faults.quota is not None and len(living) >= self.faults.quota:
            raise quota_exceeded()
        full = self.faults.full > 0
        self.faults.full -= full
        if full or kind.left[wanted["region_name"]] <= 0:
            raise no_capacity()
        kind.left[wanted["region_name"]] -= 1
        identity = secrets.token_hex(16)
        self._late.changes(identity, None)
        ip, private = self.machines.start(identity)
        status = "active"
        if self.faults.unhealthy > 0:
            self.faults.unhealthy -= 1
            status = "unhealthy"
        self.instances[identity] = {
            "id": identity,
            "name": wanted.get("name", ""),
            "ip": ip,
            "private_ip": private,
            "status": "booting",
            "ssh_key_names": list(keys),
            "file_system_names": [self.file_systems[one]["name"] for one in mounts],
            "file_system_mounts": [
                {"mount_point": place, "file_system_id": one} for one, place in mounts.items()
            ],
            "region": _region(wanted["region_name"]),
            "instance_type": kind.described(),
            "hostname": wanted.get("hostname", ip.replace(".", "-")),
            "is_reserved": False,
            "actions": AVAILABLE,
            "tags": list(wanted.get("tags", [])),
            "firewall_rulesets": [{"id": one} for one in rulesets],
        }
        for one in rulesets:
            self.rulesets[one]["instance_ids"].append(identity)
        self._due[identity] = (self._now() + self.faults.boot_seconds, status)
        return {"instance_ids": [identity]}

    def terminate(self, identities: list[str]) -> dict[str, Any]:
        """End instances, all of them or none."""
        found = [self.instance(one) for one in identities]
        for one in found:
            if one["status"] == "terminating":
                continue
            if one["id"] in self.faults.held:
                raise Refusal(
                    400, "instance-operations/terminate/unavailable", "vm-has-not-launched"
                )
            self._late.changes(one["id"], dict(one))
            one["status"] = "terminating"
            self.types[one["instance_type"]["name"]].left[one["region"]["name"]] += 1
            self._due[one["id"]] = (self._now() + self.faults.terminating_seconds, "terminated")
            self.machines.stop(one["id"])
            for ruleset in self.rulesets.values():
                if one["id"] in ruleset["instance_ids"]:
                    ruleset["instance_ids"].remove(one["id"])
        return {"terminated_instances": found}

    def list_file_systems(self) -> list[dict[str, Any]]:
        """Return the file systems, each with whether it is mounted anywhere."""
        used = {
            mount["file_system_id"]
            for one in self.list_instances()
            for mount in one["file_system_mounts"]
        }
        return [{**one, "is_in_use": one["id"] in used} for one in self.file_systems.values()]

    def create_file_system(self, name: str, region: str) -> dict[str, Any]:
        """Create a file system."""
        if not FILE_SYSTEM.fullmatch(name) or len(name) > 60:
            raise invalid("The name of a filesystem starts with a letter.")
        if name in {one["name"] for one in self.file_systems.values()}:
            raise Refusal(
                400, "global/duplicate", "A filesystem already exists.", "Choose another name."
            )
        identity = secrets.token_hex(16)
        self.file_systems[identity] = {
            "id": identity,
            "name": name,
            "mount_point": f"/lambda/nfs/{name}",
            "created": _today(),
            "created_by": {"id": "0" * 32, "email": "ann@example.org", "status": "active"},
            "is_in_use": False,
            "region": _region(region),
            "bytes_used": 0,
        }
        return self.file_systems[identity]

    def delete_file_system(self, identity: str) -> dict[str, Any]:
        """Delete a file system that no instance has mounted."""
        found = {one["id"]: one for one in self.list_file_systems()}.get(identity)
        if found is None:
            raise missing("Filesystem")
        if found["is_in_use"]:
            code, suggestion = "filesystems/filesystem-in-use", "Terminate its instances first."
            raise Refusal(400, code, "Filesystem is in use.", suggestion)
        del self.file_systems[identity]
        return {"deleted_ids": [identity]}

    def add_ssh_key(self, name: str, public_key: str) -> dict[str, Any]:
        """Store a public key."""
        if name in {one["name"] for one in self.ssh_keys.values()}:
            raise invalid("An SSH key of this name already exists.")
        identity = secrets.token_hex(16)
        self.ssh_keys[identity] = {"id": identity, "name": name, "public_key": public_key}
        return self.ssh_keys[identity]

    def create_ruleset(self, name: str, region: str, rules: list[Any]) -> dict[str, Any]:
        """Create a firewall ruleset."""
        identity = secrets.token_hex(16)
        self.rulesets[identity] = {
            "id": identity,
            "name": name,
            "region": _region(region),
            "rules": rules,
            "created": _today(),
            "instance_ids": [],
        }
        return self.rulesets[identity]

    def change_ruleset(self, identity: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change name or rules of a firewall ruleset."""
        found = self._ruleset(identity)
        found.update({key: changes[key] for key in ("name", "rules") if key in changes})
        return found

    def delete_ruleset(self, identity: str) -> dict[str, Any]:
        """Delete a firewall ruleset that no instance uses."""
        if self._ruleset(identity)["instance_ids"]:
            code = "firewall-rulesets/firewall-ruleset-in-use"
            suggestion = "Terminate its instances first."
            raise Refusal(400, code, "Firewall ruleset is in use.", suggestion)
        del self.rulesets[identity]
        return {}

    def _ruleset(self, identity: str) -> dict[str, Any]:
        if identity not in self.rulesets:
            raise missing("Firewall ruleset")
        return self.rulesets[identity]

    def _mounts(self, wanted: dict[str, Any]) -> dict[str, str]:
        """Return where each file system of a launch is mounted, by its id."""
        by_name = {one["name"]: one for one in self.file_systems.values()}
        places = {}
        for name in wanted.get("file_system_names", []):
            if name not in by_name:
                raise missing(f"Filesystem {name}")
            places[by_name[name]["id"]] = by_name[name]["mount_point"]
        for mount in wanted.get("file_system_mounts", []):
            if mount["file_system_id"] not in self.file_systems:
                raise missing("Filesystem")
            if not MOUNT.fullmatch(mount["mount_point"]):
                raise invalid("Filesystems are mounted below /home, /lambda/nfs or /data.")
            places[mount["file_system_id"]] = mount["mount_point"]
        for identity in places:
            if self.file_systems[identity]["region"]["name"] != wanted["region_name"]:
                code = "instance-operations/launch/file-system-in-wrong-region"
                message = "Filesystem is not in the region of the instance."
                raise Refusal(400, code, message, "Choose another region.")
        return places

    def _rulesets_of(self, wanted: dict[str, Any]) -> list[str]:
        identities = [one["id"] for one in wanted.get("firewall_rulesets", [])]
        for identity in identities:
            if self._ruleset(identity)["region"]["name"] != wanted["region_name"]:
                raise invalid("Firewall rulesets must be in the region of the instance.")
        return identities


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": name}


def _today() -> str:
    return datetime.now(UTC).isoformat()
