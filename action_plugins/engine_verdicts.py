"""Gather what the waits of all engines found, so that every host knows what did not come up."""

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_verdicts
short_description: Gather what the waits of all engines found
description:
  - Runs once, on the controller, after a looped wait that each engine's first host did, or for
    servers the host of each. An engine is ready when all its servers are.
options:
  waits: {description: Name of the variable that the wait registered., type: str, required: true}
"""

EXAMPLES = r"""
- name: See which engines did not come up
  engine_verdicts:
    waits: __vllm_ready
  register: __vllm_verdicts
  run_once: true
"""

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host
from vllm_ansible.plan.verdicts import gathered
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """Split the results of all hosts into those that are ready and those that are not."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `ready` and `unready`, each wait by engine, and names: `silent` and `wrong`."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        try:
            waits = of_each_host(variables, hosts, self._task.args["waits"])
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        results = [one for wait in waits.values() for one in wait.get("results", [])]
        return {**result, "changed": False, **gathered(results)}
