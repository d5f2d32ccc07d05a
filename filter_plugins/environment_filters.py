"""Filters over what the engine's environment must hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.environment_request import environment_request


def vllm_environment_request(requirements: str, packages: list[str], python: str) -> dict[str, Any]:
    """Return digest, packages and Python: lock | vllm_environment_request(dirs, python)."""
    try:
        return environment_request(Path(requirements), [Path(one) for one in packages], str(python))
    except (OSError, KeyError, ValueError) as error:
        raise AnsibleFilterError(
            f"what the engine's environment must hold cannot be read: {error!r}"
        ) from error


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"vllm_environment_request": vllm_environment_request}
