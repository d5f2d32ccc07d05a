"""Fill library/secret_files.py from files of the controller, so that no secret is a variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Takes `files` (name on the host: path on the controller) beside `contents`.

    `wrap` is text around every secret of `files`, with %s where it goes.
    """

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result, with every secret kept out of it."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        files, wrap = arguments.pop("files"), arguments.pop("wrap", "%s")
        contents = dict(arguments.pop("contents", {}))
        for name, source in files.items():
            path = Path(source)
            if not path.exists() and self._task.check_mode:
                # A first run would make it; what is there cannot be compared.
                return {"changed": True, "written": sorted(files), "removed": []}
            if not path.exists():
                raise AnsibleActionFail(f"the secret {name} is expected in {source}: no such file")
            contents[name] = wrap % path.read_text().strip()
        return dict(
            self._execute_module(
                module_name="secret_files",
                module_args={**arguments, "contents": contents},
                task_vars=task_vars,
            )
        )
