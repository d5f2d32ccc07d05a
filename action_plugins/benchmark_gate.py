"""Judge what was measured of every engine; touches no host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.benchmark.verdict import verdict
from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """The gate of the stage benchmark: every request was answered with tokens.

    plan is the plan; what the role benchmark registered on each host is read from there.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or say which engine was not measured."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        plan = plain(self._task.args["plan"])
        try:
            looks = of_each_host(variables, hosts_of_this_run(variables), "__benchmark_look")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        return {**result, **verdict(plan.get("engines", []), looks, self._task.check_mode)}
