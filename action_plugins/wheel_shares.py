"""Decide who builds which wheel, and have the sources of what is built; touches no host."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.host.kept_files import KeptFiles
from vllm_ansible.inventory.play_variables import hosts_that_answer, of_each_host
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.wheels.shares import shares
from vllm_ansible.wheels.source import archive


class ActionModule(ActionBase):
    """Compare what hosts have with what the controller keeps; see library/wheel_shares.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return each host's share, and where the controller has what is taken and built from."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "cache_dir": {"type": "path", "required": True},
                "looks": {"type": "str", "required": True},
            }
        )
        cache = KeptFiles(Path(wanted["cache_dir"]))
        variables = task_vars or {}
        try:
            looks = of_each_host(variables, hosts_that_answer(variables), wanted["looks"])
            wheels = {one["key"]: one for look in looks.values() for one in look["wheels"]}
            kept = {key: cache.look(key) for key in wheels}
            decided = shares(
                {host: [one["key"] for one in look["wheels"]] for host, look in looks.items()},
                {host: same(look["present"], kept) for host, look in looks.items()},
                [key for key, (record, _) in kept.items() if record],
            )
            built = [key for share in decided.values() for key in share.builds]
            archives = {} if self._task.check_mode else self._archives(built, wheels, cache)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        return {
            **result,
            "changed": False,
            "hosts": {host: asdict(share) for host, share in decided.items()},
            "cached": {key: str(cache.place(key)) for key in wheels},
            "archives": archives,
            "damaged": [wrong for _, wrong in kept.values() if wrong],
        }

    def _archives(
        self, keys: list[str], wheels: dict[str, dict[str, Any]], cache: KeptFiles
    ) -> dict[str, str]:
        """Return the archive of each source that is built from."""
        return {
            key: str(archive(one["name"], one["source"], one["revision"], cache.root / "sources"))
            for key, one in ((key, wheels[key]) for key in keys)
        }


def same(present: dict[str, Any], kept: dict[str, tuple[dict[str, Any] | None, str]]) -> list[str]:
    """Return what a host has, but for wheels of which the controller keeps another build."""
    known = {key: record["sha256"] for key, (record, _) in kept.items() if record}
    return [key for key, one in present.items() if known.get(key, one["sha256"]) == one["sha256"]]
