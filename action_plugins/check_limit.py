"""Refuse to act on some of an engine's hosts only; see library/check_limit.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.cluster import estimate, split_engines
from vllm_ansible.inventory.play_variables import gpu_hosts, hosts_of_this_run, plain
from vllm_ansible.planner.plan import Plan
from vllm_ansible.planner.ports import INTERNAL_BASE
from vllm_ansible.planner.problem import PlanError, as_result

DECLARED = ("accelerator", "accelerator_count")


class ActionModule(ActionBase):
    """Judge on the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return nothing, or every engine that --limit would split."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        gpu = gpu_hosts(variables)
        try:
            plan = self._plan(plain(self._task.args), variables["hostvars"], gpu)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        problems = split_engines(plan, hosts_of_this_run(variables))
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        return {**result, "changed": False}

    @staticmethod
    def _plan(arguments: dict[str, Any], hostvars: Any, gpu: tuple[str, ...]) -> Plan | None:
        """Return the kept plan, else the estimate; none where the engines have no place at all."""
        if arguments.get("kept"):
            return Plan.from_dict(arguments["kept"])
        declared = {
            host: {name: plain(hostvars[host].get(name)) for name in DECLARED} for host in gpu
        }
        base = int(arguments.get("port_base", INTERNAL_BASE))
        _, plan, _ = estimate(str(arguments["cluster"]), arguments["engines"], declared, base)
        return plan
