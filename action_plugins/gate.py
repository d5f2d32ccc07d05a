"""Judge measurements: pass with evidence, or fail with the first one that does not hold."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gate
short_description: Judge measurements between stages
description:
  - Runs on the controller and touches no host. It passes with C(evidence), or fails with what was
    C(expected) and C(found), C(where), and a C(fix).
  - Give either O(judge), or O(gate), O(summary) and O(measurements).
options:
  judge:
    description: Who judges, a name of the table in this file. It knows what it is given, no more.
    type: str
  of:
    description: Values that the judge needs.
    type: dict
    default: {}
  of_each_host:
    description:
      - Names of variables, by the names that the judge has for them. It is given what each holds
        on every host of this run. An empty name is a variable that no host has.
    type: dict
    default: {}
  gate: {description: Name of the gate., type: str}
  summary: {description: One line for people., type: str}
  values: {description: The figures behind it., type: dict, default: {}}
  measurements:
    description:
      - Each with C(what) was measured, whether it is C(ok), C(expected), C(found), C(where) and
        C(fix).
    type: list
    elements: dict
  warnings: {description: What is warned of., type: list, elements: str, default: []}
"""

EXAMPLES = r"""
- name: Judge that there is room
  gate:
    gate: host
    summary: gh-01 is ready
    measurements:
      - what: free disk space
        ok: "{{ free > needed }}"
        expected: "{{ needed }}"
        found: "{{ free }}"
        where: gh-01
        fix: free some

- name: Check that every host has the same models
  gate:
    judge: weights
    of_each_host: {looks: __weights_look, fetched: __weights_fetched}
  run_once: true
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.gate import Case
from vllm_ansible.inventory.play_variables import hosts_of_this_run, plain
from vllm_ansible.problem import PlanError, Problem, as_result, close_match

# The room in which the judge stands: its function `judge` takes a Case and returns the result. A
# room is imported when it judges.
JUDGES = {
    "benchmark": "vllm_ansible.benchmark.gate",
    "computation": "vllm_ansible.computation.gate",
    "devices": "vllm_ansible.verify.devices_gate",
    "environment": "vllm_ansible.environment.gate",
    "links": "vllm_ansible.verify.links_gate",
    "preflight": "vllm_ansible.verify.preflight.gate",
    "reach": "vllm_ansible.verify.reach.gate",
    "serve": "vllm_ansible.plan.serve_gate",
    "weights": "vllm_ansible.weights.gate",
    "wheels": "vllm_ansible.wheels.gate",
}
TOLD = ("expected", "found", "where", "fix")


class ActionModule(ActionBase):
    """A gate between stages."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or the failure of the first measurement that is not ok."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "judge": {"type": "str"},
                "of": {"type": "dict", "default": {}},
                "of_each_host": {"type": "dict", "default": {}},
                "gate": {"type": "str"},
                "summary": {"type": "str"},
                "values": {"type": "dict", "default": {}},
                "warnings": {"type": "list", "elements": "str", "default": []},
                "measurements": {
                    "type": "list",
                    "elements": "dict",
                    "options": {
                        "what": {"type": "str", "required": True},
                        # Text that says no must not pass for something.
                        "ok": {"type": "bool", "required": True},
                        "expected": {"type": "raw", "default": ""},
                        "found": {"type": "raw", "default": ""},
                        "where": {"type": "raw", "default": ""},
                        "fix": {"type": "raw", "default": ""},
                    },
                },
            },
            required_one_of=[["judge", "measurements"]],
            required_together=[["gate", "summary", "measurements"]],
            mutually_exclusive=[["judge", "measurements"]],
        )
        for words in wanted["warnings"]:
            self._display.warning(words)
        if not wanted["judge"]:
            return {**result, **judged(wanted)}
        try:
            told = _judge(wanted["judge"])(self._case(plain(wanted), task_vars or {}))
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        for words in told.pop("warns", ()):
            self._display.warning(words)
        return {**result, **told}

    def _case(self, wanted: dict[str, Any], variables: dict[str, Any]) -> Case:
        """Return what the judge is given."""
        hosts = hosts_of_this_run(variables)
        named = wanted["of_each_host"]
        found: dict[str, dict[str, Any]] = {name: {} for name in named}
        for name, variable in named.items():
            for host in hosts if variable else ():
                of_host = variables["hostvars"][host]
                if variable in of_host:
                    found[name][host] = plain(of_host[variable])
        return Case(hosts, wanted["of"], found, named, bool(self._task.check_mode))


def _judge(name: str) -> Callable[[Case], dict[str, Any]]:
    """Return who judges, or refuse a name that is not in the table."""
    if name not in JUDGES:
        raise PlanError(
            Problem(
                f"gate: there is no judge {name}",
                expected=", ".join(JUDGES),
                found=name,
                where="action_plugins/gate.py",
                fix=close_match(name, JUDGES),
            )
        )
    judge: Callable[[Case], dict[str, Any]] = import_module(JUDGES[name]).judge
    return judge


def judged(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on measurements that a task has made itself."""
    missed = [one for one in wanted["measurements"] if not one["ok"]]
    if not missed:
        evidence = {key: wanted[key] for key in ("gate", "summary", "values")}
        return {"changed": False, "evidence": evidence}
    others = f" (and {len(missed) - 1} more: " if len(missed) > 1 else ""
    names = ", ".join(f"{one['where']}: {one['what']}" for one in missed[1:])
    first = missed[0]
    return {
        "failed": True,
        "msg": f"{first['where']}: check failed: {first['what']}{others}{names}"
        + (")" if others else ""),
        **{field: first[field] for field in TOLD},
        "missed": missed,
    }
