"""Interfaces, what the kernel allows their sockets, and RDMA devices."""

from __future__ import annotations

import ctypes.util
from pathlib import Path
from typing import Any, Optional

from ..kernel_files import number, text
from . import network
from .pci import bridges_that_redirect

SYSCTLS = ("net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
MODULES = ("ib_uverbs", "rdma_ucm")


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return interfaces with their MTU and speed in Mbit/s, kernel settings and RDMA software."""
    return {
        "interfaces": [interface(entry, root) for entry in network.addresses()],
        "sysctls": {name: sysctl(name, root) for name in SYSCTLS},
        "modules": {name: (root / "sys/module" / name).exists() for name in MODULES},
        "verbs": ctypes.util.find_library("ibverbs") is not None,
        "iommu": any((root / "sys/kernel/iommu_groups").glob("*")),
        "iommu_passthrough": "iommu=pt" in text(root / "proc/cmdline").split(),
        "redirecting_bridges": bridges_that_redirect(root / "sys/bus/pci/devices"),
    }


def interface(entry: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return an address with its interface's MTU, speed, hardware address and path filter."""
    name = entry["interface"]
    place = root / "sys/class/net" / name
    filters = [number(root / "proc/sys/net/ipv4/conf" / one / "rp_filter") for one in ("all", name)]
    return {
        **entry,
        "mtu": number(place / "mtu"),
        "speed": number(place / "speed"),
        "hardware": text(place / "address"),
        # The stricter of both holds (Documentation/networking/ip-sysctl.rst).
        "path_filter": max(value or 0 for value in filters),
    }


def sysctl(name: str, root: Path) -> Optional[list[int]]:
    """Return the numbers of a kernel setting, or None where a container does not have it."""
    words = text(root / "proc/sys" / name.replace(".", "/")).split()
    return [int(word) for word in words] or None


def devices(root: Path) -> list[dict[str, Any]]:
    """Return RDMA devices: name, driver, and of each port its link layer, state and GID types."""
    found = []
    for place in sorted((root / "sys/class/infiniband").glob("*")):
        driver = place / "device/driver"
        ports = sorted((place / "ports").glob("*"))
        found.append(
            {
                "name": place.name,
                "driver": driver.resolve().name if driver.exists() else "",
                "ports": [
                    {
                        "link_layer": text(port / "link_layer"),
                        # "4: ACTIVE"
                        "state": text(port / "state").partition(": ")[2],
                        "gid_types": sorted(
                            {text(one) for one in (port / "gid_attrs/types").glob("*")} - {""}
                        ),
                    }
                    for port in ports
                ],
            }
        )
    return found
