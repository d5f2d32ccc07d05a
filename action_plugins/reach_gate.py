"""Judge what all hosts measured of each other; touches no host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.verify.reach.measured import Measured
from vllm_ansible.verify.reach.purposes import purposes
from vllm_ansible.verify.reach.verdict import judge
from vllm_ansible.verify.row import FAIL, PASS, Row, with_accepted

GATE = "reach"
TOLD = ("expected", "found", "where", "fix")


class ActionModule(ActionBase):
    """The gate of ports, loss and clocks between hosts; see library/reach_gate.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or every finding with the first one in front."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        if len(hosts) < 2:
            summary = "one host: there is no other to reach"
            return {**result, "changed": False, **_evidence(summary, {"hosts": len(hosts)}, [])}
        if self._task.check_mode:
            reason = "nothing was measured, since that starts programs on the hosts"
            return {**result, "skipped": True, "skip_reason": reason}
        arguments = plain(self._task.args)
        try:
            verdict = judge(_measured(arguments, variables, hosts))
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        rows = with_accepted(verdict.rows, arguments.get("accept") or [])
        for row in rows:
            if row.verdict not in (PASS, FAIL):
                self._display.warning(
                    f"{row.what} ({row.verdict}): expected {row.expected}, found {row.found}; "
                    f"{row.fix}"
                )
        missed = [row for row in rows if row.verdict == FAIL]
        told = _evidence(verdict.summary, dict(verdict.values), rows)
        if missed:
            told = {"rows": told["rows"], "values": verdict.values, **_failure(missed)}
        return {**result, "changed": False, **told}


def _measured(
    arguments: dict[str, Any], variables: dict[str, Any], hosts: tuple[str, ...]
) -> Measured:
    """Return what the role reach registered on each host."""
    begun = of_each_host(variables, hosts, "__reach_responder")
    probes = of_each_host(variables, hosts, "__reach_probe")
    ended = of_each_host(variables, hosts, "__reach_end")
    return Measured(
        addresses={host: str(begun[host]["responder"]["address"]) for host in hosts},
        responders={host: begun[host]["responder"] for host in hosts},
        answered={host: bool(ended[host]["answered"]) for host in hosts},
        probes={
            (host, peer): found
            for host in hosts
            for peer, found in probes[host]["peers"].items()
            if peer in hosts
        },
        purposes=purposes(
            arguments["engines"], int(arguments["port_base"]), arguments.get("kept") or {}
        ),
    )


def _evidence(summary: str, values: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Return what a gate that passes shows, with what it found and lets pass."""
    noted = [f"{row.what} ({row.verdict})" for row in rows if row.verdict != PASS]
    evidence = {"gate": GATE, "summary": summary, "values": {**values, "noted": noted}}
    return {"rows": [row.told() for row in rows], "evidence": evidence}


def _failure(missed: list[Row]) -> dict[str, Any]:
    """Return what a failing gate says: the first row whole, the others by name."""
    others = "; ".join(row.what for row in missed[1:])
    more = f" (and {len(missed) - 1} more: {others})" if others else ""
    return {
        "failed": True,
        "msg": f"{missed[0].what}{more}",
        **{name: getattr(missed[0], name) for name in TOLD},
        "missed": [{"check": row.check, **row.measurement()} for row in missed],
    }
