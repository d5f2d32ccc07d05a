"""Jinja filters over the layout planner: how to run a model on machines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.problem import PlanError


def vllm_arguments(
    model: str,
    line: str,
    accelerators: dict[str, Any] | None = None,
    **more: Any,
) -> list[str]:
    """Return the arguments of `vllm serve` that run a model best on a line of machines.

    more: concurrency, input_tokens, output_tokens, objective, context, engine_version, eager.
    """
    try:
        request = Request(load(model), machines(line, accelerators), **more)
        return list(answer(request).start.arguments)
    except (PlanError, TypeError) as error:
        raise AnsibleFilterError(f"vllm_arguments: {error}") from error


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"vllm_arguments": vllm_arguments}
