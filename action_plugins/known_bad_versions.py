"""Refuse a plan that the installed vLLM cannot carry; see library/known_bad_versions.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.plan.known_bad import known_bad
from vllm_ansible.problem import as_result


class ActionModule(ActionBase):
    """Compare on the controller; no host is asked."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pass, or fail with each engine that would not come up."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "version": {"type": "str", "required": True},
                "engines": {"type": "list", "elements": "dict", "required": True},
            }
        )
        try:
            problems = known_bad(wanted["version"], plain(wanted["engines"]))
        except ValueError:
            self._display.warning(
                f"whether vLLM {wanted['version']} is known to be bad cannot be told: no version"
            )
            problems = []
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        return {**result, "changed": False}
