"""Find out which accelerators this host has, without the vendor's Python packages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..container import in_container
from . import enflame
from .cuda_driver import CudaError, Driver

PCI, DEV = Path("/sys/bus/pci/devices"), Path("/dev")
NVIDIA_VENDOR, ENFLAME_VENDOR = "0x10de", "0x1e36"
# PCI base classes 0x03 (display) and 0x12 (processing accelerator): not a card's audio function.
ACCELERATOR_CLASSES = ("0x03", "0x12")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def pci_devices(vendor: str, root: Path = PCI) -> list[str]:
    """Return the bus addresses of a vendor's display or processing devices."""
    if not root.is_dir():
        return []
    return sorted(
        device.name
        for device in root.iterdir()
        if _read(device / "vendor") == vendor
        and _read(device / "class").startswith(ACCELERATOR_CLASSES)
    )


def nvidia_devices() -> list[dict[str, Any]]:
    """Return name and memory of each device as the CUDA driver reports it, by ctypes.

    An empty list also means that the driver is absent or refuses: what PCI shows beside it tells.
    """
    try:
        driver = Driver()
        return [driver.name_and_memory(index) for index in range(driver.start())]
    except CudaError:
        return []


def enflame_devices(on_bus: list[str]) -> list[dict[str, Any]]:
    """Return name and memory of each device as efsmi tells it; its bare number without that tool.

    The driver makes a file /dev/gcuN for each device that it opened, in a container as well.
    """
    told = enflame.devices(enflame.ask("-q"))
    if told:
        return [{name: one[name] for name in ("index", "name", "memory_bytes")} for one in told]
    return [{"index": index} for index in enflame.nodes()[: len(on_bus)]]


def withheld(on_bus: int, files: str) -> int:
    """Return how many devices this container was not given: its machine's bus shows them as well.

    files: how the driver names a device's file in /dev; a runtime makes those that it gives.
    """
    if not in_container() or not DEV.is_dir():
        return 0
    given = sum(bool(re.fullmatch(files, one.name)) for one in DEV.iterdir())
    return max(0, on_bus - given) if given else 0


def accelerators() -> dict[str, Any]:
    """Return what this host computes with: kind, count, devices and what PCI shows.

    kind is `nvidia`, `enflame` or `cpu`; count is the number of usable devices, which is 0 when
    cards are plugged in but their driver does not answer, and 1 on a host without any; withheld
    is how many of PCI's are not for this container.
    """
    nvidia, enflame_cards = pci_devices(NVIDIA_VENDOR), pci_devices(ENFLAME_VENDOR)
    devices = nvidia_devices()
    if nvidia or devices:
        driver = _read(Path("/sys/module/nvidia/version"))
        found = _found("nvidia", devices, len(devices), nvidia, driver)
        return {**found, "withheld": withheld(len(nvidia), r"nvidia\d+")}
    if enflame_cards:
        driver = _read(Path("/sys/module/enflame/version"))
        devices = enflame_devices(enflame_cards) if driver else []
        found = _found("enflame", devices, len(devices), enflame_cards, driver)
        return {**found, "withheld": withheld(len(enflame_cards), r"gcu\d+")}
    return _found("cpu", [{"index": 0}], 1, [], "")


def _found(
    kind: str, devices: list[dict[str, Any]], count: int, pci: list[str], driver: str
) -> dict[str, Any]:
    return {
        "kind": kind,
        "count": count,
        "devices": devices,
        "pci": pci,
        "driver_version": driver,
        "withheld": 0,
    }
