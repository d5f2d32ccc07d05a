"""Names and versions of the packages a driver is made of.

Names: NVIDIA Driver Installation Guide, "Kernel Modules" and "Version locking"
(docs.nvidia.com/datacenter/tesla/driver-installation-guide/, releases 590 to 620); the fabric
manager's: the repositories' own listings; DCGM's: "Install DCGM" (docs.nvidia.com/datacenter/dcgm).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.accelerators.platforms.nvidia import CUDA_13, branch

DRIVER_VERSION = re.compile(r"^\d{3}\.\d+(\.\d+)?$")
MODULE_PACKAGE = re.compile(
    r"^(nvidia-(open-)?(kernel|dkms)|kmod-nvidia|nvidia-driver-\d+|nvidia-open)"
)
FABRIC_MANAGER = re.compile(r"^nvidia-fabric-?manager(-\d+)?$")
DCGM = re.compile(r"^datacenter-gpu-manager(-4-(core|cuda\d+|cuda-all))?$")
LIBRARY_PACKAGE = re.compile(
    r"^(libnvidia-(ml|compute|cfg|ptx|gpucomp)|libcuda1$|nvidia-(driver|headless|utils))"
)
# Looked at apart from the driver, or free to have another version.
BESIDE = re.compile(r"pinning|fabric-?manager|imex|container|assistant|libxnvctrl|nvidia-fs")
# From this release the fabric manager carries no branch in its name.
PLAIN_FABRIC_MANAGER = 580


def upstream(version: str) -> str:
    """Return a version without the epoch and revision of its package."""
    return version.rpartition(":")[2].partition("-")[0]


def driver_packages(packages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the packages that come with a driver, with their versions."""
    return {
        str(one["name"]): upstream(str(one["version"]))
        for one in packages
        if DRIVER_VERSION.match(upstream(str(one["version"])))
        and not BESIDE.search(str(one["name"]))
    }


def core(packages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return those of them that must have one version: kernel modules and what talks to them.

    Firmware and tools of an earlier driver may stay behind and harm nobody.
    """
    return {
        name: version
        for name, version in driver_packages(packages).items()
        if MODULE_PACKAGE.match(name) or LIBRARY_PACKAGE.match(name)
    }


def packaged(packages: Sequence[Mapping[str, Any]]) -> str:
    """Return the version that the packages install: that of the kernel's modules, if any."""
    found = core(packages)
    modules = [version for name, version in found.items() if MODULE_PACKAGE.match(name)]
    versions = modules or list(found.values())
    return max(versions, key=parts) if versions else ""


def parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare."""
    return tuple(int(one) for one in re.findall(r"\d+", version))


def fabric_manager(packages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fabric managers that are installed, with their versions."""
    return {
        str(one["name"]): upstream(str(one["version"]))
        for one in packages
        if FABRIC_MANAGER.match(str(one["name"]))
    }


def dcgm(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the packages of DCGM that are installed."""
    return [str(one["name"]) for one in packages if DCGM.match(str(one["name"]))]


def held_together(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what an upgrade must not touch by itself: the driver and its fabric manager."""
    return sorted({*driver_packages(packages), *fabric_manager(packages)})


def unheld(packages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which of those nothing holds; the vendor's pin of one very version holds them all."""
    if f"nvidia-driver-pinning-{packaged(packages)}" in {one["name"] for one in packages}:
        return []
    held = {one["name"] for one in packages if one["held"]}
    return [name for name in held_together(packages) if name not in held]


def headers(manager: str, kernel: str) -> list[str]:
    """Return the packages that a module is built with for a kernel."""
    return [f"linux-headers-{kernel}"] if manager == "apt" else [f"kernel-devel-{kernel}"]


def pin(manager: str, wanted: str) -> str:
    """Return what keeps a host on a branch: a package, or a stream of a module."""
    return f"nvidia-driver-pinning-{wanted}" if manager == "apt" else f"nvidia-driver:{wanted}-open"


def fabric_manager_name(manager: str, version: str) -> str:
    """Return the fabric manager's package for a driver version."""
    if branch(version) >= PLAIN_FABRIC_MANAGER:
        return "nvidia-fabricmanager"
    return (
        f"nvidia-fabricmanager-{branch(version)}" if manager == "apt" else "nvidia-fabric-manager"
    )


def at_version(manager: str, name: str, version: str) -> str:
    """Return how a package manager is asked for one version, whatever its revision."""
    return f"{name}={version}*" if manager == "apt" else f"{name}-{version}"


def dcgm_name(version: str) -> str:
    """Return the package of DCGM for a driver version."""
    return f"datacenter-gpu-manager-4-cuda{13 if branch(version) >= CUDA_13 else 12}"
