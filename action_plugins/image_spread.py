"""Decide which hosts need the tar of the engine's image, and from whom they get it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_that_answer, of_each_host
from vllm_ansible.planner.problem import PlanError, as_result
from vllm_ansible.weights.image import manifest, way


class ActionModule(ActionBase):
    """Compare what hosts and the controller have; see library/image_spread.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the way of the tar, and what the weight store needs to pass it on."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "file": {"type": "path", "required": True},
                "sha256": {"type": "str", "required": True},
                "slug": {"type": "str", "required": True},
            }
        )
        variables = task_vars or {}
        here = Path(wanted["file"])
        try:
            looks = of_each_host(variables, hosts_that_answer(variables), "__environment_look")
            decided = way(wanted["file"], looks, here.stat().st_size if here.is_file() else 0)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        return {
            **result,
            "changed": False,
            **asdict(decided),
            "manifests": manifest(wanted["slug"], decided.size, wanted["sha256"]),
        }
