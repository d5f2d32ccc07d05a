"""Read what the kernel of a host shows of NVIDIA's devices, modules and libraries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..accelerators.accelerator import pci_devices
from ..accelerators.platforms.nvidia import PLATFORM

# PCI class 0x0680 is "other bridge": what an NVSwitch calls itself.
SWITCH_CLASS = "0x0680"
# Where a linker of the supported distributions finds libraries, containers' place included.
LIBRARIES = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib"),
    *("usr/local/nvidia/lib64", "usr/local/nvidia/lib"),
)
PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")
# Daemons of the driver itself: they hold devices open and do no work of anybody's.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi")
DRIVER_FILE = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def devices(root: Path) -> list[str]:
    """Return the bus addresses of NVIDIA's devices."""
    return pci_devices(PLATFORM.vendor, root / "sys/bus/pci/devices")


def switches(root: Path) -> int:
    """Return how many NVSwitches the bus shows; those of NVLink 5 are none of its devices."""
    bus = root / "sys/bus/pci/devices"
    return sum(
        1
        for device in (bus.iterdir() if bus.is_dir() else ())
        if read(device / "vendor") == PLATFORM.vendor
        and read(device / "class").startswith(SWITCH_CLASS)
    )


def models(root: Path) -> list[str]:
    """Return the product name of each device, as the loaded module tells it."""
    found = []
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", read(information), re.MULTILINE)
        if match:
            found.append(match.group(1).strip())
    return found


def module(root: Path, release: str) -> dict[str, Any]:
    """Return the loaded version, its flavour, and whether one is built for the running kernel."""
    told = read(root / "proc/driver/nvidia/version")
    loaded = read(root / "sys/module/nvidia/version")
    flavour = ""
    if loaded:
        flavour = "open" if "Open Kernel Module" in told else "proprietary"
    modules = root / "lib/modules" / release
    return {
        "loaded": loaded,
        "flavour": flavour,
        "built": _holds(modules, re.compile(r"nvidia\.ko(\.\w+)?")),
        "headers": (modules / "build").exists(),
        "nouveau": (root / "sys/module/nouveau").is_dir(),
    }


def _holds(directory: Path, name: re.Pattern[str]) -> bool:
    return any(name.fullmatch(one) for _, _, files in os.walk(directory) for one in files)


def library(root: Path) -> dict[str, str]:
    """Return path and version of the libnvidia-ml.so.1 that programs load; empty without one."""
    for directory in LIBRARIES:
        link = root / directory / "libnvidia-ml.so.1"
        match = DRIVER_FILE.search(os.path.realpath(link)) if link.exists() else None
        if match:
            return {"path": str(link), "version": match.group(1)}
    return {"path": "", "version": ""}


def fabric(root: Path) -> dict[str, list[str]]:
    """Return the RDMA devices and the loaded modules that let them reach device memory."""
    cards = root / "sys/class/infiniband"
    return {
        "rdma": sorted(one.name for one in cards.iterdir()) if cards.is_dir() else [],
        "peer_memory": [one for one in PEER_MEMORY if (root / "sys/module" / one).is_dir()],
    }


def users(root: Path) -> list[str]:
    """Return name and number of each process that holds a device open; root sees all of them."""
    found = []
    for process in (root / "proc").glob("[0-9]*"):
        try:
            held = {os.readlink(one) for one in (process / "fd").iterdir()}
        except OSError:
            continue
        name = read(process / "comm")
        if name not in DAEMONS and any(re.fullmatch(r"/dev/nvidia\d+", one) for one in held):
            found.append(f"{name} ({process.name})")
    return sorted(found)


def running(root: Path) -> set[str]:
    """Return the names of all processes, each as long as the kernel keeps it: 15 characters."""
    return {read(one) for one in (root / "proc").glob("[0-9]*/comm")}


def read(path: Path) -> str:
    """Return what a file says, stripped; nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
