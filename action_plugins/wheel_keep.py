"""Bring wheels from a host to the controller; see library/wheel_keep.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.host.file import bring
from vllm_ansible.host.kept_files import KeptError, KeptFiles
from vllm_ansible.record import plays
from vllm_ansible.record.progress import Progress


class ActionModule(ActionBase):
    """Read each wheel in pieces, with whatever privileges and connection the task has."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the files that were brought."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "cache_dir": {"type": "path", "required": True},
                "wheels": {"type": "list", "elements": "dict", "required": True},
            }
        )
        cache = KeptFiles(Path(wanted["cache_dir"]))
        if not self._task.check_mode:
            for record in wanted["wheels"]:
                problem = self._keep(cache, record, task_vars or {})
                if problem:
                    return {**result, "failed": True, **problem}
        files = [record["file"] for record in wanted["wheels"]]
        # What a run keeps on its own side is no change of a host.
        return {**result, "changed": False, "kept": files}

    def _keep(
        self, cache: KeptFiles, record: Mapping[str, Any], variables: dict[str, Any]
    ) -> dict[str, Any]:
        """Bring one wheel; return what went wrong."""
        told = {key: value for key, value in record.items() if key != "path"}
        try:
            cache.keep(record["key"], told, self._bring(record, variables))
        except (KeptError, OSError) as error:
            return {
                "msg": f"{record['file']} could not be brought to this machine: {error}",
                "expected": f"{record['size']} bytes with the SHA-256 {record['sha256']}",
                "found": str(error),
                "where": f"{variables['inventory_hostname']}:{record['path']}",
                "fix": f"make room in {cache.root}, or remove that folder on the host; then run "
                "the same command again",
            }
        return {}

    def _bring(
        self, record: Mapping[str, Any], variables: dict[str, Any]
    ) -> Callable[[Path], None]:
        """Return what writes the wheel to a path of the controller."""
        line = Progress(Display(), plays.stage(self._task.play), f"keep {record['name']}")
        size = record["size"]
        return bring(
            record["path"],
            size,
            lambda arguments: self._execute_module(
                module_name="file_piece", module_args=arguments, task_vars=variables
            ),
            lambda done: line.show(f"{record['name']} to this machine", done, size, "bytes"),
        )
