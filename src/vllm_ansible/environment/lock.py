"""Choose which of the shipped locks the engine's environment of a cluster is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.accelerators.platform import platform, platforms
from vllm_ansible.accelerators.platforms.nvidia import expected_lock as cuda_lock
from vllm_ansible.problem import PlanError, Problem

__all__ = ["PYTHONS", "cuda_lock", "lock_of", "lock_summary", "unserved"]
# The Pythons that a lock holds a wheel of every distribution for.
PYTHONS = {name: found for one in platforms().values() for name, found in one.locks.items()}


def lock_of(
    host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]], python: str | None = None
) -> str:
    """Return the name of the lock for a host of a cluster, or nothing where none is shipped.

    All hosts of a cluster run one environment, so the oldest driver of them decides. A driver that
    does not answer decides nothing: what installs or judges drivers comes first. python: what the
    lock has to serve, if that is asked.
    """
    lock = platform(host["accelerator"]).lock(hosts)
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


def lock_summary(host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return why this lock, for the console."""
    lock_of(host, hosts)
    kind = platform(host["accelerator"])
    return kind.lock_why(hosts) or f"an environment is locked for {kind.name}"
