"""Choose how engines that did not answer after their first start are started next."""

from __future__ import annotations

DOCUMENTATION = r"""
name: engine_rung
short_description: Choose how engines that did not answer are started next
description:
  - Runs once, on the controller, after M(engine_verdicts). Chooses the next rung of the ladder for
    each engine that this run has started and that did not answer, where its verdict or a known line
    of its logs points to one.
  - Chooses nothing as soon as one of these engines has no such rung.
options:
  verdicts: {description: What M(engine_verdicts) has returned., type: dict, required: true}
  decision: {description: What M(engine_decision) has returned., type: dict, required: true}
  engines: {description: The engines of the plan., type: list, elements: dict, required: true}
  hosts: {description: C(site_host) of every host., type: list, elements: dict, required: true}
  head: {description: The head of the cluster., type: str, required: true}
  provider: {description: Who rents the machines., type: str, default: ""}
  most: {description: How often an engine is started again., type: int, required: true}
  looks:
    description: Name of the variable in which every host keeps what M(processes_info) returned.
    type: str
    required: true
  logs_of:
    description: Name of the variable in which every host keeps what M(engine_logs_info) returned.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Choose the next rung of engines that did not answer
  engine_rung:
    verdicts: "{{ __vllm_verdicts }}"
    decision: "{{ plan_decision }}"
    engines: "{{ site_plan.engines }}"
    hosts: "{{ site_hosts }}"
    head: "{{ site_head }}"
    most: 3
    looks: __vllm_started
    logs_of: __vllm_logs
  register: __vllm_rung
  run_once: true
"""

import sys
import time
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.plan import first_start
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.record.diagnosis.points import points


class ActionModule(ActionBase):
    """Read what the head keeps and the logs of all hosts, and choose."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `engines` to start again, their `steps` by host, and the head's `ladder`."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        wanted = plain(self._task.args)
        hosts = hosts_of_this_run(variables)
        try:
            looks = of_each_host(variables, hosts, wanted["looks"])
            collected = of_each_host(variables, hosts, wanted["logs_of"])
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        kept = (looks.get(wanted["head"]) or {}).get("ladder") or {}
        logs = {
            name: "\n".join(
                one["tails"][log]
                for one in collected.values()
                for log in (one.get("of_engine") or {}).get(name, ())
            )
            for name in wanted["verdicts"]["unready"]
        }
        site = first_start.Site(
            **{"hosts": wanted["hosts"], "head": wanted["head"], "most": int(wanted["most"])},
            **{"provider": wanted.get("provider", ""), "lines": points()},
        )
        chosen = first_start.climbs(
            wanted["engines"], wanted["verdicts"], wanted["decision"], kept, logs, site, time.time()
        )
        steps = [step for one in chosen.values() for step in one["steps"]]
        return {
            **result,
            "changed": False,
            "engines": list(chosen),
            "steps": {host: [one for one in steps if one["host"] == host] for host in hosts},
            "ladder": first_start.document(kept, chosen, wanted["verdicts"]["ready"]),
            **({"warnings": first_start.rows(chosen)} if chosen else {}),
        }
