"""Choose which of the shipped locks the engine's environment of a cluster is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.drivers.packages import CUDA_13, branch
from vllm_ansible.problem import PlanError, Problem

# The first branch that runs what is built for any CUDA 12 (NVIDIA, CUDA Compatibility, "Minor
# Version Compatibility": CUDA 12.x from 525 on, 13.x from 580 on).
CUDA_12 = 525
# The last torch of CUDA 12 on the package index is for x86_64 alone.
CUDA_12_ARCHITECTURES = ("x86_64",)
# The Pythons that a lock holds a wheel of every distribution for. The index of packages has torch
# for CUDA alone, and of torch for CPUs the lock holds one wheel.
PYTHONS = {
    "cpu": ("3.11",),
    "cuda": ("3.11", "3.12", "3.13"),
    "cuda12": ("3.11", "3.12", "3.13"),
}


def lock_of(
    host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]], python: str | None = None
) -> str:
    """Return the name of the lock for a host of a cluster, or nothing where none is shipped.

    All hosts of a cluster run one environment, so the oldest driver of them decides. A driver that
    does not answer decides nothing: what installs or judges drivers comes first. python: what the
    lock has to serve, if that is asked.
    """
    lock = _by_accelerator(host, hosts)
    if python is not None and (problem := unserved(lock, python, host["name"])):
        raise PlanError(problem)
    return lock


def unserved(lock: str, python: str, where: str) -> Problem | None:
    """Return the refusal of a Python that a shipped lock has no wheels for."""
    served = PYTHONS.get(lock, (python,))
    if python in served:
        return None
    return Problem(
        f"requirements/engine-{lock}.txt does not serve Python {python}",
        expected=f"engine_python: {' or '.join(served)}",
        found=f"engine_python: {python}",
        where=where,
        fix=(
            f'set engine_python: "{served[0]}", or give environment_requirements, a lock of your '
            f"own for Python {python} (docs/environment.md)"
        ),
    )


def _by_accelerator(host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> str:
    if host["accelerator"] != "nvidia":
        return "cpu" if host["accelerator"] == "cpu" else ""
    problems = [
        problem
        for one in _older(hosts)
        if (problem := _too_old(one) or _not_built(one)) is not None
    ]
    if problems:
        raise PlanError(problems)
    return cuda_lock(hosts)


def cuda_lock(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the lock for the NVIDIA hosts of a cluster, also where it is refused."""
    return "cuda12" if _older(hosts) else "cuda"


def lock_summary(host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return why this lock, for the console."""
    if lock_of(host, hosts) != "cuda12":
        return f"an environment is locked for {host['accelerator']}"
    told = ", ".join(f"driver {one['driver_version']} on {one['name']}" for one in _older(hosts))
    return (
        f"an environment is locked for CUDA 12 ({told}); from driver {CUDA_13} on it would be that "
        "for CUDA 13, with a newer vLLM"
    )


def _older(hosts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the hosts whose driver does not know CUDA 13."""
    found = [host for host in hosts if host["accelerator"] == "nvidia"]
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
