"""Say before engines start how long their weights will take to load."""

from __future__ import annotations

DOCUMENTATION = r"""
name: loading_forecast
short_description: Say before engines start how long their weights will take to load
description:
  - Runs once, on the controller, after M(weights_storage_info) has looked on each host. Never fails
    for what it does not know. Engines that nobody has to wait for are not mentioned.
options:
  engines: {description: Engines of the plan., type: list, elements: dict, required: true}
  looks: {description: Name of the variable that the looks registered., type: str, required: true}
  version: {description: Version of vLLM., type: str, default: ""}
"""

EXAMPLES = r"""
- name: Say how long loading will take
  loading_forecast:
    engines: "{{ site_plan.engines }}"
    looks: __vllm_storage
  run_once: true
"""

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.weights.loading import forecast


class ActionModule(ActionBase):
    """Join what all hosts found of the engines that are about to start."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `engines`, the forecast of each by name, and evidence where there is a line."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "engines": {"type": "list", "elements": "dict", "required": True},
                "looks": {"type": "str", "required": True},
                "version": {"type": "str", "default": ""},
            }
        )
        variables = task_vars or {}
        try:
            looks = of_each_host(variables, hosts_of_this_run(variables), wanted["looks"])
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        found = {}
        for engine in plain(wanted["engines"]):
            name = engine["name"]
            of_hosts = {
                host: look["engines"][name]
                for host, look in looks.items()
                if name in look.get("engines", {})
            }
            if of_hosts:
                found[name] = forecast(engine, of_hosts, wanted["version"])
        lines = [one["line"] for one in found.values() if one["line"]]
        told = {"gate": "loading", "summary": "; ".join(lines), "values": {"engines": found}}
        return {
            **result,
            "changed": False,
            "engines": found,
            **({"evidence": told} if lines else {}),
        }
