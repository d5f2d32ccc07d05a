"""Which failures concern a host, and which of its devices may be reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def hosts_of(where: str) -> list[str]:
    """Return the hosts that a row names; of cards it names the host and the card."""
    return [one.partition(" ")[0] for one in where.split(", ")]


def failing_on(failing: Sequence[Mapping[str, Any]], host: str) -> list[Mapping[str, Any]]:
    """Return the failing rows that name a host."""
    return [one for one in failing if host in hosts_of(str(one["where"]))]


def resettable(look: Mapping[str, Any]) -> list[str]:
    """Return the devices whose errors ask for a reset, where no process uses any device.

    Devices that links join are reset together, so one that is in use protects all.
    """
    found = look.get("devices", {})
    if any(device.get("processes") != [] for device in found.get("devices", [])):
        return []
    errors = found.get("kernel_log", {}).get("errors", [])
    return sorted({str(one["pci"]) for one in errors if one["verdict"] == "reset"})
