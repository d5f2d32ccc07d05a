"""Enflame's devices on a host, asked by its tool efsmi."""

from __future__ import annotations

from typing import Any

from .. import enflame
from ..host_platform import HostPlatform


def devices(on_bus: list[str], driver: str) -> list[dict[str, Any]]:
    """Return name and memory of each device as efsmi tells it; its bare number without that tool.

    The driver makes a file /dev/gcuN for each device that it opened, in a container as well.
    """
    if not on_bus or not driver:
        return []
    told = enflame.devices(enflame.ask("-q"))
    if told:
        return [{name: one[name] for name in ("index", "name", "memory_bytes")} for one in told]
    return [{"index": index} for index in enflame.nodes()[: len(on_bus)]]


PLATFORM = HostPlatform(
    name="enflame",
    vendor="0x1e36",
    version_file="/sys/module/enflame/version",
    device_file=r"gcu\d+",
    devices=devices,
    in_containers=("gcu",),
)
