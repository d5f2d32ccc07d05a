"""An accelerator that nobody makes, on a host."""

from __future__ import annotations

from typing import Any

from ..host_platform import HostPlatform

MEMORY = 48 << 30


def devices(on_bus: list[str], driver: str) -> list[dict[str, Any]]:
    """Return what its driver would answer."""
    del on_bus, driver
    return [{"index": one, "name": "Imagined One", "memory_bytes": MEMORY} for one in range(2)]


PLATFORM = HostPlatform(
    name="imagined",
    vendor="0xfffe",
    version_file="/sys/module/imagined/version",
    device_file=r"imagined\d+",
    devices=devices,
)
