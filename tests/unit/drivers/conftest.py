"""Looks at hosts with a driver, as nvidia_driver_info reports them, to be broken by tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

NEW, OLD = "580.159.04", "580.126.20"
KERNEL = "6.8.0-60-generic"


def package(name: str, version: str = f"{NEW}-1", held: bool = True) -> dict[str, Any]:
    return {"name": name, "version": version, "held": held}


def service(active: bool = True, enabled: bool = True) -> dict[str, bool]:
    return {"exists": True, "active": active, "enabled": enabled}


HEALTHY: dict[str, Any] = {
    "present": True,
    "devices": [f"0000:1{number}:00.0" for number in range(8)],
    "models": ["NVIDIA H200"] * 8,
    "switches": 4,
    "kernel": KERNEL,
    "module": {
        "loaded": NEW,
        "flavour": "open",
        "built": True,
        "headers": True,
        "nouveau": False,
    },
    "library": {"path": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "version": NEW},
    "manager": "apt",
    "packages": [
        package("nvidia-open"),
        package("nvidia-kernel-open-dkms"),
        package("libnvidia-ml1"),
        package("nvidia-fabricmanager"),
        package("datacenter-gpu-manager-4-cuda13", "1:4.4.1-1", held=False),
        package("nvidia-container-toolkit", "1.17.8-1", held=False),
        package("libxnvctrl0", "510.47.03-0ubuntu4", held=False),
        package("nvidia-firmware-570-570.133.20", "570.133.20-0ubuntu1", held=True),
    ],
    "broken": [],
    "unattended": False,
    "services": {
        "nvidia-fabricmanager": service(),
        "nvidia-dcgm": service(),
        "nvidia-persistenced": service(),
    },
    "rdma": ["mlx5_0"],
    "peer_memory": [],
    "container": False,
    "boot_id": "a",
    "repository": {},
    "users": [],
}


def changed(**changes: Any) -> dict[str, Any]:
    """Return a healthy look with some parts replaced; a mapping replaces only what it names."""
    found = copy.deepcopy(HEALTHY)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(found[name], dict) and found[name]:
            found[name].update(value)
        else:
            found[name] = value
    return found


def packages(**versions: str) -> list[dict[str, Any]]:
    """Return the healthy packages; an empty version takes one away, underscores are dashes."""
    wanted = {name.replace("_", "-"): version for name, version in versions.items()}
    kept = [one for one in HEALTHY["packages"] if wanted.get(one["name"]) != ""]
    return [
        {**one, "version": wanted[one["name"]]} if one["name"] in wanted else dict(one)
        for one in kept
    ] + [
        package(name, version)
        for name, version in wanted.items()
        if version and name not in {one["name"] for one in HEALTHY["packages"]}
    ]


@pytest.fixture
def look() -> Callable[..., dict[str, Any]]:
    """Return what makes a look that differs from a healthy one."""
    return changed


@pytest.fixture
def with_packages() -> Callable[..., list[dict[str, Any]]]:
    """Return what makes packages that differ from healthy ones."""
    return packages
