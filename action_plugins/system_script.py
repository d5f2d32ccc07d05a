"""Write one script for the administrator of all hosts; see library/system_script.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_that_answer, of_each_host
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.system.script import render
from vllm_ansible.system.told import needs_administrator

NAME = "administrator.sh"


class ActionModule(ActionBase):
    """Write what root has to do where this run has no root, into the directory of the run."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the path of the script; empty where no host needs an administrator."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        hosts = hosts_that_answer(variables)
        try:
            judged = of_each_host(variables, hosts, self._task.args["judged"])
            facts = of_each_host(variables, hosts, self._task.args["hosts"])
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        asked = {
            host: judged[host]
            for host in hosts
            if needs_administrator(judged[host], facts[host]["privileges"] == "root")
        }
        run_dir = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
        path = Path(run_dir or ".", NAME)
        text = render(asked, {host: facts[host]["address"] for host in hosts}, str(path))
        written = bool(text and run_dir)
        if written:
            path.write_text(text, encoding="utf-8")
        return {**result, "changed": False, "path": str(path) if written else "", "script": text}
