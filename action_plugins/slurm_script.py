"""Write a script for sbatch; see library/slurm_script.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import gpu_hosts, plain
from vllm_ansible.inventory.readable import readable
from vllm_ansible.inventory.specs import load_options
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.slurm.standalone import standalone
from vllm_ansible.slurm.wanted import Wanted, wanted
from vllm_ansible.slurm.written import write

ROLES = Path(__file__).resolve().parents[1] / "roles"


class ActionModule(ActionBase):
    """Plan, render and write on the controller; no host is touched."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the file, and whether it was written."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        try:
            hosts = _hosts(variables)
            asked = wanted(hosts, readable)
            text = standalone(asked)
            first = next(iter(hosts.values()))
            path = Path(str(first["slurm_script"] or ".")).expanduser().absolute()
            path = path / f"{asked.settings.cluster}.sbatch" if path.is_dir() else path
            replace = str(first["slurm_script_replace"]).lower() in ("true", "yes", "1")
            changed = write(path, text, replace, self._task.check_mode)
        except PlanError as refused:
            return {**result, "failed": True, **as_result(refused.problems)}
        verb = "is as it should be" if not changed else "written"
        verb = "would be written" if changed and self._task.check_mode else verb
        return {
            **result,
            "changed": changed,
            "path": str(path),
            "warnings": _warnings(asked),
            "evidence": {
                "gate": "sbatch",
                "summary": f"{path} {verb}; {asked.plan.summary()}",
                "values": {"path": str(path), **asked.plan.evidence()},
            },
        }


def _hosts(task_vars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every documented variable of each host, evaluated, with the roles' defaults."""
    options = load_options(ROLES)
    found: dict[str, dict[str, Any]] = {}
    for host in gpu_hosts(task_vars):
        own = task_vars["hostvars"][host]
        found[host] = {name: option.default for name, option in options.items()}
        found[host] |= {name: plain(own[name]) for name in options if name in own}
    return found


def _warnings(asked: Wanted) -> list[str]:
    """Return what a person should know before the job is submitted."""
    found = list(asked.plan.warnings)
    found += [
        f"whether engine {name} fits is not checked: {why}"
        for name, why in asked.plan.unchecked.items()
    ]
    if idle := asked.plan.idle(asked.hosts):
        enough = len(asked.hosts) - len(idle)
        found.append(
            f"the plan uses {enough} of the {len(asked.hosts)} nodes that the job asks for: "
            f"slurm_nodes: {enough} is enough, or give an engine another layout"
        )
    return found
