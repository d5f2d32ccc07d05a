"""RunPod's cloud, for whoever knows it by its name alone."""

from __future__ import annotations

from typing import Any

from .provider import Provider, Settings
from .runpod_api import ApiError
from .runpod_cluster import RunpodCluster
from .runpod_settings import READ, devices_of, settings
from .runpod_words import words
from .transport import Unreachable

# Data between the pods of a cluster; eth0 leads to the internet alone.
DATA_PLANE = "ens1"


def variables(wanted: Settings) -> dict[str, Any]:
    """Return what all pods have: they are containers without systemd."""
    found: dict[str, Any] = {"supervisor": "supervisord"}
    if wanted.count > 1:
        found["data_plane_interface"] = DATA_PLANE
    return found


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
    kept="; a network volume is kept unless runpod_remove_volume is true",
    together=True,
    variables=variables,
    login="that ssh has the key whose public half runpod_ssh_public_key_file names, and that "
    "runpod_image runs sshd",
    reach="that ssh reaches its public port from here",
)
