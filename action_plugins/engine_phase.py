"""Take one step of a decision on this host: stop or start the processes it names."""

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_phase
short_description: Stop or start the processes that one step of a decision names
description:
  - Calls M(managed_process) for each of O(steps), as M(engine_decision) returned them.
  - A task of this action is a barrier over all hosts, so the order of an engine's start and stop
    is the order of the tasks.
options:
  steps:
    description: The steps of this host in this phase.
    type: list
    elements: dict
    required: true
  host: {description: C(site_host) of this host., type: dict, required: true}
  cluster: {description: The cluster that owns the processes., type: str, required: true}
  allow_restart:
    description:
      - Whether a running process may be restarted. A decision has weighed that before, and stops
        first what it starts; who has none asks here.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Start Ray heads
  engine_phase:
    steps: "{{ plan_decision.hosts[inventory_hostname].start_heads }}"
    host: "{{ site_host }}"
    cluster: "{{ cluster_name }}"
"""

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.site_host import supervisor_dir

# What a step holds for managed_process; the rest is for people and for the order.
PROCESS = (
    "name",
    "engine",
    "state",
    "argv",
    "environment",
    "depends",
    "limits",
    "user",
    "cleanup",
    "restart",
)


class ActionModule(ActionBase):
    """Stop at the first process that does not do as asked."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what was done with each process, and the exact commands."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "steps": {"type": "list", "elements": "dict", "required": True},
                "host": {"type": "dict", "required": True},
                "cluster": {"type": "str", "required": True},
                "allow_restart": {"type": "bool", "default": True},
            }
        )
        host = wanted["host"]
        common = {
            "cluster": wanted["cluster"],
            "cluster_dir": host["cluster_dir"],
            "run_dir": supervisor_dir(host),
            "supervisor": host["supervisor"],
            "supervisord_python": f"{host['cluster_dir']}/tools/bin/python",
            "allow_restart": wanted["allow_restart"],
        }
        done: list[dict[str, Any]] = []
        for step in wanted["steps"]:
            arguments = {key: step[key] for key in PROCESS if step.get(key) is not None}
            answer = self._execute_module(
                module_name="managed_process",
                module_args={**common, **arguments},
                task_vars=task_vars,
            )
            if answer.get("failed"):
                return {**answer, "done": done}
            done.append(
                {key: answer[key] for key in ("action", "reason", "command", "log")}
                | {"name": step["name"]}
            )
        return {
            **result,
            "changed": any(one["action"] != "none" for one in done),
            "done": done,
            "commands": [one["command"] for one in done if one["action"] in ("start", "restart")],
        }
