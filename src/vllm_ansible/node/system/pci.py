"""PCI bridges that send traffic between devices through the processor (access control services)."""

from __future__ import annotations

from pathlib import Path

EXTENDED = 0x100
ACS = 0x000D
# Request and completion redirect, upstream forwarding (PCI Express 6.0, 7.7.11.3).
REDIRECTS = 0x04 | 0x08 | 0x10


def bridges_that_redirect(devices: Path) -> list[str]:
    """Return the addresses of bridges that redirect; only root may read what tells it."""
    return sorted(
        place.name
        for place in devices.glob("*")
        if bridge(place) and acs_control(configuration(place)) & REDIRECTS
    )


def bridge(place: Path) -> bool:
    """Tell whether a device is a bridge between PCI buses."""
    try:
        return (place / "class").read_text().startswith("0x0604")
    except OSError:
        return False


def configuration(place: Path) -> bytes:
    """Return a device's configuration space: 64 bytes for users, 4096 for root."""
    try:
        return (place / "config").read_bytes()
    except OSError:
        return b""


def acs_control(space: bytes) -> int:
    """Return the control register of access control services; 0 where there is none."""
    place, seen = EXTENDED, set()
    while EXTENDED <= place <= len(space) - 8 and place not in seen:
        seen.add(place)
        header = int.from_bytes(space[place : place + 4], "little")
        if header & 0xFFFF == ACS:
            return int.from_bytes(space[place + 6 : place + 8], "little")
        place = header >> 20
    return 0
