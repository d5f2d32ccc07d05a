"""RunPod's cloud, for whoever knows it by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .clock import Clock
from .provider import Provider, Settings
from .runpod_api import ApiError, RunpodApi
from .runpod_cluster import RunpodCluster
from .runpod_settings import ENDPOINT, READ, devices_of, settings
from .runpod_words import words
from .transport import Unreachable

# Data between the pods of a cluster; eth0 leads to the internet alone.
DATA_PLANE = "ens1"
# How many accelerators a pod may have.
SIZES = (1, 2, 4, 8)


def variables(wanted: Settings) -> dict[str, Any]:
    """Return what all pods have: they are containers without systemd."""
    found: dict[str, Any] = {"supervisor": "supervisord"}
    if wanted.count > 1:
        found["data_plane_interface"] = DATA_PLANE
    return found


def prices(key: str, endpoint: str) -> Mapping[str, int]:
    """Return US cents an hour of pods of each type in the secure cloud."""
    with TemporaryDirectory() as place:
        api = RunpodApi(key, Clock(Path(place) / "clock", {"request": 0.0}), endpoint or ENDPOINT)
        listed = api.gpu_types()
    return {
        f"{count}x {name}": round(100 * count * float(one.get("price", {}).get("secure") or 0))
        for name, one in listed.items()
        for count in SIZES
    }


PROVIDER = Provider(
    name="runpod",
    title="RunPod",
    read=READ,
    settings=settings,
    cluster=RunpodCluster,
    errors=(ApiError, Unreachable),
    refusal=words,
    devices_of=devices_of,
    user="root",
    places="runpod_data_centers",
    kept=attrgetter("left"),
    together=True,
    variables=variables,
    parts=attrgetter("parts"),
    prices=prices,
    login="that ssh has the key whose public half runpod_ssh_public_key_file names, and that "
    "runpod_image runs sshd",
    reach="that ssh reaches its public port from here",
)
