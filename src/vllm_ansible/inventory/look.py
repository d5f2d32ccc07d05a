"""What the module host_info found on a host, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.accelerators.platform import platform


@dataclass(frozen=True)
class Address:
    """One IPv4 address of a host."""

    interface: str
    address: str
    network: str
    kind: str


@dataclass(frozen=True)
class HostLook:
    """One host as it was found."""

    name: str
    uid: int
    user: str
    home: str
    sudo: bool
    pid1: str
    architecture: str
    distribution: str
    distribution_version: str
    python: str
    cores: int
    memory_bytes: int
    # By privileges: without a wish they choose the place.
    disk_free: Mapping[str, int]
    boot_id: str
    accelerator: str
    accelerator_count: int
    accelerators_on_the_bus: int
    addresses: tuple[Address, ...]
    accelerator_name: str = ""
    accelerator_memory_bytes: int = 0
    # Those that answer, by numbers that stay when one falls silent; none of CUDA, which renumbers.
    accelerator_indices: tuple[int, ...] = ()

    @classmethod
    def read(cls, name: str, look: Mapping[str, Any]) -> HostLook:
        """Return the typed look of the module's answer."""
        found = look["accelerators"]
        devices = found.get("devices") or [{}]
        return cls(
            name=name,
            accelerator=found["kind"],
            accelerator_count=found["count"],
            accelerators_on_the_bus=len(found.get("pci") or ()) - int(found.get("withheld") or 0),
            addresses=tuple(
                Address(item["interface"], item["address"], item["network"], item["kind"])
                for item in look["addresses"]
            ),
            uid=look["uid"],
            user=look["user"],
            home=look["home"],
            sudo=look["sudo"],
            pid1=look["pid1"],
            architecture=look["architecture"],
            distribution=look["distribution"],
            distribution_version=look["distribution_version"],
            python=look["python"],
            cores=look["cores"],
            memory_bytes=look["memory_bytes"],
            disk_free=look["disk_free"],
            boot_id=look["boot_id"],
            accelerator_name=str(devices[0].get("name") or ""),
            # A layout is planned for the least of them.
            accelerator_memory_bytes=min(int(one.get("memory_bytes") or 0) for one in devices),
            accelerator_indices=(
                tuple(sorted(one["index"] for one in devices if "index" in one))
                if platform(found["kind"]).stays_numbered
                else ()
            ),
        )
