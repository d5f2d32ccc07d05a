"""Judge what every host of the play shows, check by check; touches no host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.record.diagnosis import host_facts
from vllm_ansible.verify.preflight import judge
from vllm_ansible.verify.preflight.check import ACCEPTED, FAIL, WARN, Cluster, Row


class ActionModule(ActionBase):
    """The gate preflight; reads what preflight_info registered on each host."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence with all rows, or every row that fails."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "looks": {"type": "str", "required": True},
                "engines": {"type": "list", "elements": "dict", "default": []},
                "cuda": {"type": "str", "default": ""},
                "accept": {"type": "list", "elements": "str", "default": []},
                "judge": {"type": "bool", "default": True},
            }
        )
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        try:
            looks = of_each_host(variables, hosts, wanted["looks"])
            facts = of_each_host(variables, hosts, "site_host")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        cluster = Cluster(
            hosts=facts,
            looks={host: looks[host]["look"] for host in hosts},
            engines=plain(wanted["engines"]),
            cuda=wanted["cuda"],
        )
        rows = judge.accept(judge.rows(cluster), wanted["accept"])
        # What a later failure is held against, when nobody can look any more.
        known = {host: host_facts.facts(cluster.looks[host], facts[host]) for host in hosts}
        return {**result, "changed": False, **self._verdict(rows, known, wanted["judge"])}

    def _verdict(self, rows: list[Row], known: dict[str, Any], fails: bool) -> dict[str, Any]:
        """Return the result of rows, and tell people what is not all well."""
        failing = [row for row in rows if row.verdict == FAIL]
        values = {"hosts": len(known), "rows": [row.to_dict() for row in rows], "facts": known}
        summary = judge.summary(rows, len(known))
        evidence = {"gate": "preflight", "summary": summary, "values": values}
        if not fails:
            return {"evidence": evidence, "failing": [judge.missed(row) for row in failing]}
        for row in rows:
            if row.verdict in (WARN, ACCEPTED):
                told = "accepted: " if row.verdict == ACCEPTED else ""
                self._display.warning(f"preflight: {told}{judge.sentence(row)}")
        if not failing:
            return {"evidence": evidence}
        missed = [judge.missed(row) for row in failing]
        more = "".join(f"\n{judge.sentence(row)}" for row in failing[1:])
        first = {name: value for name, value in missed[0].items() if name not in ("ok", "what")}
        message = f"{judge.sentence(failing[0])}{more}"
        return {"failed": True, "msg": message, **first, "missed": missed, "values": values}
