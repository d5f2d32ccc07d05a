"""What an inventory of two pods at the emulated RunPod says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.emulators.runpod_account import Account
from tests.emulators.runpod_cloud import Cloud
from tests.emulators.runpod_parts import Cpu, Gpu

from .runpod_world import H200, KANSAS, PUBLIC_KEY

KEY = "key-of-ann.0123456789"


def cloud() -> Cloud:
    """Return an account with room for one cluster."""
    account = Account(
        [Gpu("NVIDIA H200", 3.5, {KANSAS: 16})],
        {KANSAS: ["STANDARD"]},
        cpus=[Cpu("cpu5c", 0.04, {KANSAS: 64})],
    )
    return Cloud(account, KEY)


def variables(directory: Path, cloud: Cloud) -> dict[str, Any]:
    """Return what an inventory says, its key in a file that nobody else reads."""
    (directory / "key").write_text(KEY)
    (directory / "key").chmod(0o600)
    (directory / "key.pub").write_text(f"{PUBLIC_KEY}\n")
    return {
        "cluster_name": "r1",
        "runpod_api_key_file": str(directory / "key"),
        "runpod_ssh_public_key_file": str(directory / "key.pub"),
        "runpod_instance_types": [H200],
        "runpod_data_centers": [KANSAS],
        "runpod_volume": "r1",
        "runpod_volume_gb": 1024,
        "runpod_endpoint": cloud.url,
        "runpod_request_seconds": 0,
        "node_count": 2,
    }
