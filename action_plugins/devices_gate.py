"""Judge what accelerators did; see library/devices_gate.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.verify.devices import judge, summary
from vllm_ansible.verify.row import failure, warnings, with_accepted


class ActionModule(ActionBase):
    """Decide on the controller, once, from the probes of all hosts."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return rows and evidence, or say which device fails."""
        result = dict(super().run(tmp, task_vars))
        arguments = plain(self._task.args)
        variables = task_vars or {}
        try:
            looks = of_each_host(variables, hosts_of_this_run(variables), arguments["looks"])
            probes = {host: look["probe"] for host, look in looks.items() if "probe" in look}
            rows = judge(probes, arguments.get("accelerators"))
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        if not probes:
            if any("measured" in look for look in looks.values()):
                return {**result, "skipped": True, "skip_reason": "check mode measures nothing"}
            told = "no accelerator that can be probed"
            evidence = {"gate": "devices", "summary": told, "values": {}}
            return {**result, "changed": False, "rows": [], "evidence": evidence}
        rows = with_accepted(rows, arguments.get("accept") or [])
        for words in warnings(rows):
            self._display.warning(words)
        told_rows = [row.told() for row in rows]
        values = {"rows": told_rows, "probes": probes}
        evidence = {"gate": "devices", "summary": summary(probes), "values": values}
        return {
            **result,
            "changed": False,
            "rows": told_rows,
            "evidence": evidence,
            **failure(rows),
        }
