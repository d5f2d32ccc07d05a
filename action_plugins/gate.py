"""Judge measurements: pass with evidence, or fail with the first one that does not hold."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

TOLD = ("expected", "found", "where", "fix")


class ActionModule(ActionBase):
    """A gate between stages; runs on the controller and touches no host.

    gate is its name and summary one line for people; values are the figures behind it. Each of
    measurements has what was measured, whether it is ok, expected, found, where and fix.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or the failure of the first measurement that is not ok."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "gate": {"type": "str", "required": True},
                "summary": {"type": "str", "required": True},
                "values": {"type": "dict", "default": {}},
                "measurements": {
                    "type": "list",
                    "elements": "dict",
                    "required": True,
                    "options": {
                        "what": {"type": "str", "required": True},
                        # Text that says no must not pass for something.
                        "ok": {"type": "bool", "required": True},
                        **{name: {"type": "raw", "default": ""} for name in TOLD},
                    },
                },
            }
        )
        missed = [one for one in wanted["measurements"] if not one["ok"]]
        if not missed:
            evidence = {key: wanted[key] for key in ("gate", "summary", "values")}
            return {**result, "changed": False, "evidence": evidence}
        others = f" (and {len(missed) - 1} more: " if len(missed) > 1 else ""
        names = ", ".join(f"{one['where']}: {one['what']}" for one in missed[1:])
        first = missed[0]
        return {
            **result,
            "failed": True,
            "msg": f"{first['where']}: check failed: {first['what']}{others}{names}"
            + (")" if others else ""),
            **{field: first[field] for field in TOLD},
            "missed": missed,
        }
