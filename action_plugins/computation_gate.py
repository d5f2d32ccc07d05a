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
  unmeasured_tolerance:
    description: The same for quantized models and mixtures of experts.
    type: float
    required: true
  again:
    description: Whether numbers that no server computes any more give way to the new ones.
    type: bool
    default: false
  references:
    description: Name of the variable that M(engine_reference) registered, where it ran.
    type: str
    default: ""
  version: {description: Release of vLLM., type: str, default: ""}
"""

EXAMPLES = r"""
- name: Compare what the servers compute
  computation_gate:
    asked: __vllm_fingerprints
    engines: "{{ site_plan.engines }}"
    kept: {}
    tolerance: 0.1
    unmeasured_tolerance: 0.37
  run_once: true
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.computation.conditions import conditions
from vllm_ansible.computation.reference import unmeasured
from vllm_ansible.computation.verdict import Limits, Server, Verdict, judge, known_start
from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result

OTHER_WEIGHTS = "nothing was computed for its weights"


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
        computed = references(variables, hosts, str(arguments.get("references", "")))
        kept, version = arguments["kept"], str(arguments.get("version", ""))
        servers = []
        for host, loop in asked.items():
            for one in loop.get("results", []):
                item = one["item"]
                if item["host"] != host:
                    continue
                one = {"asked": True, "instance": "", "refused": item["unasked"], **one}
                model = models[host].get(item["engine"], {})
                engine = engines[item["engine"]]
                kind = str(sites[host].get("accelerator", ""))
                same = conditions(engine, version, kind, model)
                start, loaded = known_start(kept, item["name"], same)
                known = not one["asked"] and start == one["instance"]
                weights = loaded if known else str(model.get("fingerprint", ""))
                rank = f" rank {item['rank']}" if int(item["of"]) > 1 else ""
                reference = computed.get(item["engine"], {})
                usable = reference.get("weights") == weights
                servers.append(
                    Server(
                        name=f"{item['engine']}{rank}",
                        engine=item["engine"],
                        process=item["name"],
                        host=host,
                        weights=weights,
                        same=same,
                        instance=one["instance"],
                        prompts=one.get("prompts", ()),
                        known=not one["asked"],
                        refused=one.get("refused", ""),
                        unmeasured=unmeasured(engine, model),
                        reference=reference.get("prompts", ()) if usable else (),
                        unreferenced=reference.get("skipped", "") or OTHER_WEIGHTS,
                    )
                )
        limits = Limits(float(arguments["tolerance"]), float(arguments["unmeasured_tolerance"]))
        verdict = judge(servers, kept, limits, bool(arguments.get("again", False)))
        for words in verdict.notes:
            self._display.warning(words)
        return {
            **result,
            "changed": False,
            "summary": summary(servers, verdict),
            "measurements": verdict.measurements,
            "wrong": verdict.wrong,
            "kept": verdict.kept,
            "differs": verdict.kept != {"weights": {}, "servers": {}, **kept},
        }


def references(variables: dict[str, Any], hosts: Sequence[str], name: str) -> dict[str, Any]:
    """Return what transformers computed, by engine, wherever it ran."""
    found: dict[str, Any] = {}
    for host in hosts if name else ():
        registered = variables["hostvars"][host].get(name) or {}
        found |= plain(registered.get("references") or {})
    return found


def summary(servers: list[Server], verdict: Verdict) -> str:
    """Return what was compared with what, in one line."""
    known = sum(1 for one in servers if one.known)
    words = [f"{verdict.compared} of {len(servers)} servers compute what their model does"]
    if known:
        words.append(f"{known} asked at their start")
    if verdict.referenced:
        words.append(f"{verdict.referenced} compared with transformers' float32 numbers")
    words += [
        f"{engine} not compared with transformers: {why}"
        for engine, why in verdict.unreferenced.items()
    ]
    return "; ".join([*words, *verdict.notes])
