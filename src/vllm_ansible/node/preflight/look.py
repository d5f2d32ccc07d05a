"""One look at a host before an engine starts; sizes are in bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..system import storage
from . import data_plane, devices, enflame_devices, kernels, limits, memory, ours, rdma, system


def _nvidia(asked: Mapping[str, Any], known: Collection[int]) -> dict[str, Any]:
    return {
        "devices": devices.look(known),
        "kernels": kernels.look(asked["environment"], asked["programs"]),
    }


def _enflame(asked: Mapping[str, Any], known: Collection[int]) -> dict[str, Any]:
    del asked
    return {"devices": enflame_devices.look(known)}


# What else is looked at by what a host computes with: sections and what is in them.
LOOKS = {"nvidia": _nvidia, "enflame": _enflame}


def look(asked: Mapping[str, Any], run: limits.Run) -> dict[str, Any]:
    """Return everything that the controller judges; the sections are those of this package.

    asked has the options of the module preflight_info. Nothing is changed but for the scratch
    files of the write test.
    """
    known = ours.processes_of(asked["cluster_dir"])
    found = {
        "system": system.look(),
        "limits": limits_of(asked, run),
        "memory": memory.look(known),
        "data_plane": data_plane.look(asked["interface"], asked["peers"]),
        "rdma": rdma.look(),
        "storage": storage.look(asked["directories"], asked["write_as"], asked["write"]),
        "running": sorted(known),
    }
    more = LOOKS.get(asked["accelerator"])
    return {**found, **more(asked, known)} if more else found


def limits_of(asked: Mapping[str, Any], run: limits.Run) -> dict[str, Any]:
    """Return what the supervisor of this host gives to what it starts."""
    if asked["supervisor"] == "systemd":
        return limits.under_systemd(asked["cluster"], asked["limits"], run)
    return limits.under_supervisord(limits.daemon_of(asked["run_dir"]), asked["limits"])
