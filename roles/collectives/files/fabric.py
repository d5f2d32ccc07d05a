"""What a host says of its own links: the interface of the data plane, RDMA ports, machine type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ACTIVE = "4:"
# Amazon's vendor number, and how the device number of each EFA card begins.
AMAZON, EFA = "0x1d0f", "0xefa"


def read(path: Path) -> str:
    """Return a file of sysfs, empty where it is not there or says nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def gigabytes(rate: str) -> float:
    """Return the GB/s of what a port says of its rate, such as `400 Gb/sec (4X NDR)`."""
    number, _, unit = rate.partition(" ")
    return float(number) / 8 if unit.startswith("Gb/sec") else 0.0


def links(interface: str, sysfs: Path = Path("/sys")) -> dict[str, Any]:
    """Return what is told of the interface, of the active RDMA ports, and of the machine.

    speed_mbit is -1 where it says nothing; ports is the GB/s of all active ports together, efa the
    number of EFA cards.
    """
    device = sysfs / "class/net" / interface
    speed = read(device / "speed")
    driver = device / "device/driver"
    ports = [
        port
        for port in (sysfs / "class/infiniband").glob("*/ports/*")
        if read(port / "state").startswith(ACTIVE)
    ]
    return {
        "speed_mbit": int(speed) if speed.lstrip("-").isdigit() else -1,
        "driver": driver.resolve().name if driver.exists() else "",
        "physical": (device / "device").exists(),
        "link_layers": sorted(read(port / "link_layer") for port in ports),
        "ports": sum(gigabytes(read(port / "rate")) for port in ports),
        "efa": sum(
            read(card / "device/vendor") == AMAZON and read(card / "device/device").startswith(EFA)
            for card in (sysfs / "class/infiniband").glob("*")
        ),
        "machine": read(sysfs / "class/dmi/id/product_name"),
    }
