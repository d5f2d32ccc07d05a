"""Fill library/secret_files.py from files of the controller, so that no secret is a variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

STATE = Path(__file__).resolve().parents[1] / "state"


def missing(name: str, path: Path) -> dict[str, str]:
    """Return what a failure says of a secret that is not on the controller."""
    ours = STATE in path.parents
    taken_again = (
        "run the stage prepare first (--tags prepare, or all of site.yml): it takes the keys of "
        "the cluster from its head again; start.yml and single stages go on after that"
    )
    return {
        "msg": f"the secret {name} is expected in {path}: no such file",
        "expected": "the key that the cluster was made with" if ours else "a file with the secret",
        "found": f"no {STATE}" if ours and not STATE.exists() else "no such file",
        "where": str(path),
        "fix": taken_again if ours else "put it there, or correct the variable that names it",
    }


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
                return {"failed": True, **missing(str(name), path)}
            contents[name] = wrap % path.read_text().strip()
        return dict(
            self._execute_module(
                module_name="secret_files",
                module_args={**arguments, "contents": contents},
                task_vars=task_vars,
            )
        )
