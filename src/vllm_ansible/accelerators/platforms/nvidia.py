"""NVIDIA's GPUs with CUDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.problem import PlanError, Problem

from ..platform import Platform, Runtime

Hosts = Sequence[Mapping[str, Any]]
# The first branch that runs CUDA 13 (Supported Drivers and CUDA Toolkit Versions, 615, table 2).
CUDA_13 = 580
# The first branch that runs what is built for any CUDA 12 (NVIDIA, CUDA Compatibility, "Minor
# Version Compatibility": CUDA 12.x from 525 on, 13.x from 580 on).
CUDA_12 = 525
# The last torch of CUDA 12 on the package index is for x86_64 alone.
CUDA_12_ARCHITECTURES = ("x86_64",)
# The Pythons that a lock holds a wheel of every distribution for.
PYTHONS = ("3.11", "3.12", "3.13")
DEVICE_LIST = "/etc/cdi/nvidia.yaml"


def branch(version: str) -> int:
    """Return the branch of a driver version: 580 of 580.159.04; 0 where there is none."""
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else 0


def lock(hosts: Hosts) -> str:
    """Return the lock for the hosts of a cluster, or refuse a driver that none is for.

    All of them run one environment, so the oldest driver decides. A driver that does not answer
    decides nothing: what installs or judges drivers comes first.
    """
    problems = [
        problem
        for one in _older(hosts)
        if (problem := _too_old(one) or _not_built(one)) is not None
    ]
    if problems:
        raise PlanError(problems)
    return expected_lock(hosts)


def expected_lock(hosts: Hosts) -> str:
    """Return the name of the lock for a cluster, also where it is refused."""
    return "cuda12" if _older(hosts) else "cuda"


def lock_why(hosts: Hosts) -> str:
    """Return why the lock is not the usual one; empty where it is."""
    if not _older(hosts):
        return ""
    told = ", ".join(f"driver {one['driver_version']} on {one['name']}" for one in _older(hosts))
    return (
        f"an environment is locked for CUDA 12 ({told}); from driver {CUDA_13} on it would be that "
        "for CUDA 13, with a newer vLLM"
    )


def _older(hosts: Hosts) -> list[Mapping[str, Any]]:
    """Return the hosts whose driver does not know CUDA 13."""
    found = [host for host in hosts if host["accelerator"] == PLATFORM.name]
    return [host for host in found if 0 < branch(host.get("driver_version") or "") < CUDA_13]


def _too_old(host: Mapping[str, Any]) -> Problem | None:
    if branch(host["driver_version"]) >= CUDA_12:
        return None
    expected = f"branch {CUDA_12} or later, {CUDA_13} for CUDA 13"
    return _refusal(host, f"driver {host['driver_version']}", expected)


def _not_built(host: Mapping[str, Any]) -> Problem | None:
    if host["architecture"] in CUDA_12_ARCHITECTURES:
        return None
    return _refusal(
        host,
        f"driver {host['driver_version']} on {host['architecture']}",
        f"branch {CUDA_13} or later on {host['architecture']}",
    )


def _refusal(host: Mapping[str, Any], found: str, expected: str) -> Problem:
    return Problem(
        f"No environment is locked for {found} of {host['name']}",
        expected=expected,
        found=found,
        where=host["name"],
        fix=(
            f"rent or boot an image with driver {CUDA_13}, set nvidia_driver_mode: manage, or give "
            "environment_requirements or environment_path"
        ),
    )


PLATFORM = Platform(
    name="nvidia",
    title="NVIDIA",
    software="cuda",
    visible_devices="CUDA_VISIBLE_DEVICES",
    renumbered=True,
    # FlashInfer's DeepGEMM runs nvcc by CUDA_HOME or the PATH, and looks nowhere else.
    programs=("/usr/local/cuda/bin",),
    efa=True,
    lock=lock,
    lock_why=lock_why,
    locks={"cuda12": PYTHONS, "cuda": PYTHONS},
    builds_for_devices=True,
    compiles_at_start=True,
    driver_role="nvidia_driver",
    runtime=Runtime(
        package="nvidia-container-toolkit",
        what="the NVIDIA container toolkit",
        fix="install nvidia-container-toolkit (from NVIDIA's repository)",
        device_list=DEVICE_LIST,
        command=("nvidia-ctk", "cdi", "generate", f"--output={DEVICE_LIST}"),
    ),
    peer_module="nvidia-peermem",
    probed=True,
    collectives="nccl",
    path_in_log=True,
    published=True,
    plain="L40S",
    widens=True,
    own_fp4_kernels=True,
    own_all_reduce=True,
)
