"""Hold the cluster in the name of this run; see library/cluster_lock.py."""

from __future__ import annotations

import getpass
import os
import sys
import time
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.node.cluster import lock


class ActionModule(ActionBase):
    """Call the module, and once more when the lock turns out to be a dead run's."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        super().run(tmp, task_vars)
        run_dir = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
        # A worker of ansible-playbook: the process that lives as long as the run is its parent.
        pid = os.getppid()
        here = lock.holder_of(pid, getpass.getuser())
        name = Path(run_dir).name if run_dir else f"pid-{pid}"
        arguments = {
            "run": lock.run_id(name, here, os.environ.get("VLLM_ANSIBLE_RUN_CHANCE", "")),
            # By this machine's clock, to be compared with when it was booted.
            "holder": {**here, "name": name, "acquired": time.time()},
            **self._task.args,
        }
        result = self._call(arguments, task_vars)
        held = result.get("lock") or {}
        if result.get("failed") and held:
            is_over, why = lock.over(held.get("holder") or {}, here)
            if is_over:
                return self._call({**arguments, "dead_runs": [held["run"]]}, task_vars)
            if why:
                result["found"] += f"; whether it still runs cannot be seen from here: {why}"
        return result

    def _call(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return dict(
            self._execute_module(
                module_name="cluster_lock", module_args=arguments, task_vars=task_vars
            )
        )
