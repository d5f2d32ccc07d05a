"""Find out which accelerators this host has, without the vendor's Python packages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..container import in_container
from .catalogue import PLATFORMS

ROOT, PCI = Path("/"), Path("/sys/bus/pci/devices")
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


def withheld(on_bus: int, files: str, root: Path) -> int:
    """Return how many devices this container was not given: its machine's bus shows them as well.

    files: how the driver names a device's file in /dev; a runtime makes those that it gives.
    """
    if not in_container(root) or not (root / "dev").is_dir():
        return 0
    given = sum(bool(re.fullmatch(files, one.name)) for one in (root / "dev").iterdir())
    return max(0, on_bus - given) if given else 0


def accelerators() -> dict[str, Any]:
    """Return what this host computes with: kind, count, devices and what PCI shows.

    kind is one of the catalogue or `cpu`; count is the number of usable devices, which is 0 when
    cards are plugged in but their driver does not answer, and 1 on a host without any; withheld
    is how many of PCI's are not for this container.
    """
    for one in PLATFORMS:
        cards, driver = pci_devices(one.vendor), _read(Path(one.version_file))
        devices = one.devices(cards, driver)
        if cards or devices:
            found = _found(one.name, devices, len(devices), cards, driver)
            return {**found, "withheld": withheld(len(cards), one.device_file, ROOT)}
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
