"""Decide whether links are measured; see library/verification_decision.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.verify.due import decide


class ActionModule(ActionBase):
    """Decide on the controller, once, from what runs on every host."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether to measure and, where not, the evidence that stands instead."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        arguments = plain(self._task.args)
        looks: dict[str, Any] = {}
        if arguments.get("looks"):
            try:
                looks = of_each_host(variables, hosts_of_this_run(variables), arguments["looks"])
            except PlanError as error:
                return {**result, "failed": True, **as_result(error.problems)}
        serving = {
            str(process["engine"])
            for look in looks.values()
            for process in look.get("processes", {}).values()
            # What is no engine's, as the load-test page, uses no link by itself.
            if process["running"] and process["engine"]
        }
        decision = decide(arguments["reason"], arguments.get("kept") or {}, sorted(serving))
        if decision.warning:
            self._display.warning(decision.warning)
        told: dict[str, Any] = {"changed": False, "measures": decision.measures}
        if not decision.measures:
            values = {"rows": arguments["kept"].get("rows", [])} if arguments.get("kept") else {}
            told["evidence"] = {"gate": "links", "summary": decision.summary, "values": values}
        return {**result, **told}
