"""Say what is wrong with a cluster and why, from what every host has just told."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_diagnosis
short_description: Name what is wrong with a cluster, with its first cause
description:
  - Runs on the controller. Reads the logs, the processes and the facts that each host of the play
    has registered, names hosts that do not answer, and holds causes against facts.
  - Keeps the logs, the facts and the answer in the directory of the run.
  - Fails where a host does not answer, or something does not run that nobody stopped.
options:
  logs: {description: Variable with what M(engine_logs_info) returned., type: str, required: true}
  looks: {description: Variable with what M(preflight_info) returned., type: str, required: true}
  processes:
    description: Variable with what M(processes_info) returned.
    type: str
    required: true
  watchdogs:
    description: Variable with what M(watchdog_info) returned.
    type: str
    required: true
  engines:
    description: The engines of the plan. What a lost host was to do is known by them.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Say what is wrong, and why
  cluster_diagnosis:
    logs: __diagnose_logs
    looks: __preflight_look
    processes: __site_processes
    watchdogs: __diagnose_watchdog
  run_once: true
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.cli.diagnose import ANSWER
from vllm_ansible.inventory.play_variables import hosts_of_this_run, plain
from vllm_ansible.plan import watched
from vllm_ansible.plan.verbs import died_engines
from vllm_ansible.record.diagnosis import cluster, evidence
from vllm_ansible.record.events import current
from vllm_ansible.record.redact import redact, redact_text, visible
from vllm_ansible.verify.preflight import host_facts

_NAMES = ("logs", "looks", "processes", "watchdogs")


class ActionModule(ActionBase):
    """Gather what hosts have registered; record.diagnosis.cluster judges."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what is wrong, or the evidence that nothing is."""
        outcome = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "logs": {"type": "str", "required": True},
                "looks": {"type": "str", "required": True},
                "processes": {"type": "str", "required": True},
                "watchdogs": {"type": "str", "required": True},
                "engines": {"type": "list", "elements": "dict", "default": []},
            }
        )
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        left = set(variables.get("ansible_play_hosts", ()))
        told = {name: _of_hosts(variables, hosts, wanted[name]) for name in _NAMES}
        logs, known = told["logs"], _known(variables, told["looks"])
        lost = [host for host in hosts if host not in left]
        processes = {host: one["processes"] for host, one in told["processes"].items()}
        died = died_engines(processes, plain(wanted["engines"]), lost)
        stalled = [
            missed
            for host, one in told["watchdogs"].items()
            for missed in watched.measurements(one, processes.get(host, {}), host)
        ]
        answer = redact(cluster.judge(logs, known, lost, died, stalled))
        if directory := current():
            _keep(directory, cluster.texts(logs, None), known, answer)
        return {**outcome, **cluster.result(answer)}


def _of_hosts(
    variables: Mapping[str, Any], hosts: tuple[str, ...], name: str
) -> dict[str, dict[str, Any]]:
    """Return what those hosts have registered under a name that did so and did not fail."""
    there = variables["hostvars"]
    found = {host: plain(there[host][name]) for host in hosts if name in there[host]}
    return {host: one for host, one in found.items() if not one.get("failed")}


def _known(
    variables: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]
) -> evidence.Evidence:
    """Return the facts of the looks that were just taken, and the clocks that verify measured."""
    kept = variables.get("verification_kept")
    before = evidence.of_kept(kept) if isinstance(kept, Mapping) else evidence.Evidence()
    there = variables["hostvars"]
    facts = {
        host: host_facts.facts(one["look"], plain(there[host]["site_host"]))
        for host, one in looks.items()
        if "look" in one and "site_host" in there[host]
    }
    return before.joined(evidence.Evidence(evidence.of_hosts(facts, "looked at just now")))


def _keep(
    directory: Path,
    logs: Mapping[str, str],
    known: evidence.Evidence,
    answer: Mapping[str, Any],
) -> None:
    """Put logs, facts and answer beside the record of the run."""
    folder = directory / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    for rank, text in logs.items():
        name = rank.replace(" ", "-").replace("/", "_")
        (folder / f"{name}.log").write_text(visible(redact_text(text)))
    facts = redact(evidence.as_document(known))
    for name, document in ((evidence.FACTS, facts), (ANSWER, answer)):
        (directory / name).write_text(json.dumps(document, indent=2) + "\n")
