"""Enflame devices before an engine starts: versions, health, memory and who holds them."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..accelerators import efml, enflame
from ..accelerators.enflame_health import HOT_SECONDS, hot
from ..drivers.enflame_driver import PEER_MEMORY, holding
from ..kernel_files import text
from . import ours


def look(known: Collection[int]) -> dict[str, Any]:
    """Return versions and devices with memory in bytes, memory errors and who holds them.

    `error` instead says why no device answers. known are the processes of the cluster; without root
    those of other users are not seen. A device that is hot at first is looked at twice.
    """
    driver = text(Path("/sys/module/enflame/version"))
    versions = {"efsmi": enflame.tool_version(enflame.ask()), **enflame.toolkit()}
    shared = {
        "driver": driver,
        "peer_memory": {"enflame": any((Path("/") / one).exists() for one in PEER_MEMORY)},
        "toolkit": {name: version for name, version in versions.items() if version},
    }
    found = enflame.devices(enflame.ask("-q"))
    if not found:
        why = "efsmi does not answer" if driver else "the module enflame is not loaded"
        return {**shared, "error": why, "devices": []}
    cool_down(found)
    holders = holding(Path("/"))
    # By number, not by place: efsmi leaves out a device that fell off, and its neighbour is well.
    numbers = [one["index"] for one in found]
    for place, errors in enumerate(efml.ecc_errors(numbers)):
        found[place]["ecc_errors"] = errors
    return {
        **shared,
        "devices": [
            {**one, "processes": _processes(one["index"], holders, known)} for one in found
        ],
    }


def cool_down(found: list[dict[str, Any]]) -> None:
    """Give each device that is hot the lower of two temperatures, ten seconds apart."""
    if not any(hot(one) for one in found):
        return
    time.sleep(HOT_SECONDS)
    later = {one["index"]: one["temperature"] for one in enflame.devices(enflame.ask("-q"))}
    for one in found:
        if later.get(one["index"]) is not None and one["temperature"] is not None:
            one["temperature"] = min(one["temperature"], later[one["index"]])


def _processes(
    index: int, holders: dict[int, tuple[str, list[int]]], known: Collection[int]
) -> list[dict[str, Any]]:
    """Return who holds a device open; efsmi does not tell with how many bytes."""
    return [
        {**ours.describe(pid), "bytes": None, "ours": pid in known}
        for pid, (_, numbers) in sorted(holders.items())
        if index in numbers
    ]
