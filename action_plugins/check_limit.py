"""Refuse to act on some of an engine's hosts only; see library/check_limit.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import context
from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.cluster import estimate, nothing_to_serve, split_engines
from vllm_ansible.inventory.play_variables import gpu_hosts, hosts_of_this_run, plain
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.ports import INTERNAL_BASE
from vllm_ansible.plan.sticky import plan_of_some_hosts
from vllm_ansible.problem import PlanError, Problem, as_result

DECLARED = ("accelerator", "accelerator_count")


def serves(variables: dict[str, Any]) -> bool:
    """Tell whether this run goes from a plan to engines that serve."""
    names = {Path(one).stem for one in context.CLIARGS.get("args") or ()}
    wanted, unwanted = variables.get("ansible_run_tags"), variables.get("ansible_skip_tags")
    stages = {"plan", "serve"}
    asked = "all" in (wanted or ["all"]) or stages <= set(wanted or ())
    return "site" in names and asked and not stages & set(unwanted or ())


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
        selected = hosts_of_this_run(variables)
        problems = split_engines(plan, selected)
        if not problems and serves(variables):
            problems = self._unplanned(plain(self._task.args), selected, gpu)
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        return {**result, "changed": False}

    @staticmethod
    def _unplanned(
        arguments: dict[str, Any], selected: Sequence[str], gpu: Sequence[str]
    ) -> list[Problem]:
        """Return what the stage plan would say of a run that comes to it, minutes later."""
        if set(selected) == set(gpu):
            return []
        kept = Plan.from_dict(arguments["kept"]) if arguments.get("kept") else None
        try:
            engines = parse_engines(arguments["engines"])
            return nothing_to_serve(plan_of_some_hosts(engines, kept, selected), selected)
        except PlanError as error:
            return list(error.problems)

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
