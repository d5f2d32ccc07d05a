"""Decide what is done about a host's Enflame driver; see library/enflame_driver_plan.py."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.drivers.enflame.decision import decide
from vllm_ansible.drivers.enflame.difference import Wanted
from vllm_ansible.drivers.enflame.differences import differences
from vllm_ansible.drivers.enflame.installer import arguments, known, version_of
from vllm_ansible.drivers.enflame.refusal import refusals
from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.problem import PlanError, as_result

TEXTS = ("version", "file", "sha256")


class ActionModule(ActionBase):
    """Decide on the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the decision, or why this driver is left as it is."""
        result = dict(super().run(tmp, task_vars))
        _, said = self.validate_argument_spec(
            argument_spec={
                "host": {"type": "dict", "required": True},
                "look": {"type": "dict", "required": True},
                "mode": {"type": "str", "choices": ["manage", "check"], "required": True},
                "arguments": {"type": "list", "elements": "str", "default": []},
                "peer_memory": {"type": "bool", "default": True},
                "devices": {"type": "int", "default": 0},
                **{name: {"type": "str", "default": ""} for name in TEXTS},
            }
        )
        said = plain(said)
        host, look = said["host"], said["look"]
        try:
            wanted = _wanted(said)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        found = differences(look, wanted)
        # A file of gigabytes is only read where it would be run.
        installs = wanted.manage and any(one.mend.install for one in found)
        root = host["privileges"] == "root"
        sha256 = digest(wanted.file) if root and installs and wanted.file else None
        problems = refusals(host["name"], look, wanted, found, sha256) if root else []
        if problems:
            return {**result, "failed": True, **as_result(problems)}
        given = {"arguments": list(wanted.arguments), "version": wanted.version}
        return {**result, "changed": False, **given, **decide(host["name"], look, wanted)}


def _wanted(said: dict[str, Any]) -> Wanted:
    """Return what a site wants; raises PlanError for a file or a version that nobody knows."""
    name = Path(said["file"]).name
    options = said["arguments"]
    if name and not options:
        options = arguments(name, said["peer_memory"])
    return Wanted(
        version=known(said["version"]) or version_of(name),
        manage=said["mode"] == "manage",
        file=said["file"],
        sha256=said["sha256"],
        arguments=tuple(options),
        peer_memory=said["peer_memory"],
        devices=said["devices"],
    )


def digest(path: str) -> str | None:
    """Return the SHA-256 of a file; None where it cannot be read."""
    try:
        with Path(path).expanduser().open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError:
        return None
