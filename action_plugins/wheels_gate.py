"""Compare the wheels over all hosts of the play; touches no host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.wheels.evidence import told, verdict


class ActionModule(ActionBase):
    """The gate of the role wheels: each host has what it needs, equal where the key is equal."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or say which host lacks or differs in what."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={"shares": {"type": "dict", "required": True}}
        )
        variables = task_vars or {}
        try:
            looks = of_each_host(variables, hosts_of_this_run(variables), "__wheels_look")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        problems = verdict(looks)
        if problems and self._task.check_mode:
            return {**result, "skipped": True, "skip_reason": problems[0].message}
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        return {
            **result,
            "changed": False,
            "evidence": {"gate": "wheels", **told(looks, wanted["shares"])},
        }
