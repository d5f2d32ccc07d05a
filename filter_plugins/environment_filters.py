"""Filters over what the engine's environment must hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.environment.lock import cuda_lock, lock_of, lock_summary
from vllm_ansible.environment.request import environment_request, image_request
from vllm_ansible.problem import PlanError
from vllm_ansible.wheels.builds import parse_builds, wanted_wheels


def vllm_environment_request(
    requirements: str,
    packages: list[str],
    python: str,
    wheels: list[dict[str, Any]],
    given: str = "",
) -> dict[str, Any]:
    """Return digest and contents: lock | vllm_environment_request(dirs, python, wheels, given)."""
    if given and wheels:
        raise AnsibleFilterError(
            "engine_build and environment_path exclude each other: nothing is installed into an "
            "environment of yours; install the build there, or leave environment_path out"
        )
    directories = [Path(one) for one in packages]
    try:
        return environment_request(Path(requirements), directories, str(python), wheels, given)
    except (OSError, KeyError, ValueError) as error:
        raise AnsibleFilterError(
            f"what the engine's environment must hold cannot be read: {error!r}"
        ) from error


def vllm_image_request(
    name: str, sha256: str, added: list[str], packages: list[str]
) -> dict[str, Any]:
    """Return digest and contents: name | vllm_image_request(sha256, added, directories)."""
    try:
        return image_request(name, sha256, added, [Path(one) for one in packages])
    except (OSError, KeyError, ValueError) as error:
        raise AnsibleFilterError(f"our own packages cannot be read: {error!r}") from error


def engine_lock(host: dict[str, Any], hosts: list[dict[str, Any]], python: str) -> str:
    """Return the name of the shipped lock: site_host | engine_lock(site_hosts, engine_python)."""
    try:
        return lock_of(host, hosts, str(python))
    except PlanError as error:
        raise AnsibleFilterError(str(error)) from error


def engine_lock_summary(host: dict[str, Any], hosts: list[dict[str, Any]]) -> str:
    """Return what the console says of that lock: site_host | engine_lock_summary(site_hosts)."""
    return lock_summary(host, hosts)


def vllm_wheels(
    engine_build: list[dict[str, Any]], host: dict[str, Any], python: str
) -> list[dict[str, Any]]:
    """Return what a host needs of what is built from source, each with its key there."""
    try:
        return wanted_wheels(parse_builds(engine_build), host, str(python))
    except PlanError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "engine_cuda_lock": cuda_lock,
            "engine_lock": engine_lock,
            "engine_lock_summary": engine_lock_summary,
            "vllm_environment_request": vllm_environment_request,
            "vllm_image_request": vllm_image_request,
            "vllm_wheels": vllm_wheels,
        }
