"""Say which machines are given back by name; see library/replaced_machines.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.provision.replaced import REASON, replaced

ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str", "default": []},
    "provider": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):
    """Read the inventory alone; nobody is asked and nothing is ended here."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a verdict for each host that was named, as if it had been looked at."""
        variables = task_vars or {}
        result = dict(super().run(tmp, variables))
        _, asked = self.validate_argument_spec(argument_spec=ARGUMENTS)
        hostvars = variables["hostvars"]
        machines = {
            str(host): plain(hostvars[host].get("provision_machine") or {})
            for host in variables["groups"]["all"]
        }
        try:
            found = replaced([one for one in asked["hosts"] if one], machines, asked["provider"])
        except PlanError as refused:
            return {**result, "failed": True, **as_result(refused.problems)}
        verdicts = {
            host: {"id": identity, "accepted": False, "reason": REASON, "told": ""}
            for host, identity in found.items()
        }
        return {**result, "changed": False, "verdicts": verdicts}
