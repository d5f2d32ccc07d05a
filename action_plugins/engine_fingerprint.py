"""Ask a server what it computes, unless its start is known; see library/engine_fingerprint.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Takes `seen` beside the module's options: the start of the server that this run has seen.

    Where that is the one which is known, the host is not asked which one it is.
    """

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result = dict(super().run(tmp, task_vars))
        arguments = dict(self._task.args)
        seen = arguments.pop("seen", "")
        if seen and seen == arguments.get("known"):
            return {**result, "changed": False, "asked": False, "instance": seen}
        return dict(
            self._execute_module(
                module_name="engine_fingerprint", module_args=arguments, task_vars=task_vars
            )
        )
