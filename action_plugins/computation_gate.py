"""Compare what servers with the same model compute, with each other and with what is kept."""

from __future__ import annotations

DOCUMENTATION = r"""
name: computation_gate
short_description: Compare what servers with the same model compute
description:
  - Runs once, on the controller, after each server was asked by M(engine_fingerprint). Does
    not fail but returns C(measurements), so that servers can be stopped before a gate fails.
options:
  asked:
    description: Name of the variable that the loop of M(engine_fingerprint) registered.
    type: str
    required: true
  engines: {description: Engines of the plan., type: list, elements: dict, required: true}
  kept:
    description: What was kept before, C(weights) and C(servers).
    type: dict
    required: true
  models:
    description: Name of the variable with the models of each host.
    type: str
    default: weights_models
  tolerance:
    description: Largest mean difference of log probabilities.
    type: float
    required: true
  version: {description: Release of vLLM., type: str, default: ""}
"""

EXAMPLES = r"""
- name: Compare what the servers compute
  computation_gate:
    asked: __vllm_fingerprints
    engines: "{{ site_plan.engines }}"
    kept: {}
    tolerance: 0.1
  run_once: true
"""

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.computation.verdict import Server, conditions, judge
from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.planner.problem import PlanError, as_result


class ActionModule(ActionBase):
    """Gather the numbers of all hosts and judge them once."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `measurements`, a `summary`, `wrong` engines, and what is to be `kept`."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        arguments = plain(self._task.args)
        hosts = hosts_of_this_run(variables)
        engines = {str(one["name"]): one for one in arguments["engines"]}
        try:
            asked = of_each_host(variables, hosts, arguments["asked"])
            models = of_each_host(variables, hosts, arguments.get("models", "weights_models"))
            sites = of_each_host(variables, hosts, "site_host")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        servers = []
        for host, loop in asked.items():
            for one in loop.get("results", []):
                item = one["item"]
                if item["host"] != host:
                    continue
                one = {"asked": True, "instance": "", "refused": item["unasked"], **one}
                model = models[host].get(item["engine"], {})
                engine = engines[item["engine"]]
                rank = f" rank {item['rank']}" if int(item["of"]) > 1 else ""
                servers.append(
                    Server(
                        name=f"{item['engine']}{rank}",
                        engine=item["engine"],
                        process=item["name"],
                        host=host,
                        weights=str(model.get("fingerprint", "")),
                        same=conditions(
                            engine,
                            str(arguments.get("version", "")),
                            str(sites[host].get("accelerator", "")),
                        ),
                        instance=one["instance"],
                        prompts=one.get("prompts", ()),
                        known=not one["asked"],
                        refused=one.get("refused", ""),
                    )
                )
        kept = arguments["kept"]
        verdict = judge(servers, kept, float(arguments["tolerance"]))
        for words in verdict.notes:
            self._display.warning(words)
        known = sum(1 for one in servers if one.known)
        summary = f"{verdict.compared} of {len(servers)} servers compute what their model does"
        summary += f"; {known} asked at their start" if known else ""
        return {
            **result,
            "changed": False,
            "summary": summary + "".join(f"; {words}" for words in verdict.notes),
            "measurements": verdict.measurements,
            "wrong": verdict.wrong,
            "kept": verdict.kept,
            "differs": verdict.kept != {"weights": {}, "servers": {}, **kept},
        }
