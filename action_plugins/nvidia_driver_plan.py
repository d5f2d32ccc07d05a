"""Decide what is done about a host's driver; see library/nvidia_driver_plan.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.drivers.decision import decide
from vllm_ansible.drivers.difference import Wanted
from vllm_ansible.drivers.differences import differences
from vllm_ansible.drivers.refusal import refusals
from vllm_ansible.drivers.repository import repository
from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.problem import PlanError, as_result

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TEXTS = ("repository", "key_url", "key_fingerprint", "script")


class ActionModule(ActionBase):
    """Decide on the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the decision, or why this driver is left as it is."""
        result = dict(super().run(tmp, task_vars))
        _, said = self.validate_argument_spec(
            argument_spec={
                "host": {"type": "dict", "required": True},
                "look": {"type": "dict", "required": True},
                "mode": {"type": "str", "choices": ["manage", "check"], "required": True},
                "branch": {"type": "int", "required": True},
                "oldest": {"type": "int", "default": 0},
                "packages": {"type": "list", "elements": "str", "required": True},
                "dcgm": {"type": "bool", "default": True},
                "reboot": {"type": "bool", "default": True},
                "allow_disruption": {"type": "bool", "default": False},
                **{name: {"type": "str", "default": ""} for name in TEXTS},
            }
        )
        said = plain(said)
        host, look = said["host"], said["look"]
        manage = said["mode"] == "manage"
        try:
            source = (
                repository(host, said["repository"], said["key_url"], said["key_fingerprint"])
                if manage and look["present"]
                else None
            )
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        wanted = Wanted(
            branch=said["branch"],
            oldest=said["oldest"],
            manage=manage,
            packages=tuple(said["packages"]),
            dcgm=said["dcgm"],
            repository=source,
        )
        root = host["privileges"] == "root"
        problems = refusals(
            host["name"],
            look,
            wanted,
            differences(look, wanted) if root else [],
            reboot=said["reboot"],
            controller=self._is_the_controller(look, task_vars or {}),
            disruption=said["allow_disruption"],
        )
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        script_path = said["script"] if manage and not root else ""
        decision = decide(host["name"], look, wanted, script_path)
        given = {"repository": vars(source) if source else {}}
        return {**result, "changed": False, **given, **decision}

    @staticmethod
    def _is_the_controller(look: dict[str, Any], variables: dict[str, Any]) -> bool:
        """Tell whether rebooting the host would end this very run."""
        local = variables.get("ansible_connection") == "local"
        return local or (BOOT_ID.is_file() and BOOT_ID.read_text().strip() == look.get("boot_id"))
