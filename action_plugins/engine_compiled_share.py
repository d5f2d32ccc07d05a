"""Bring what an engine has compiled from host to host; see library/engine_compiled_share.py."""

from __future__ import annotations

import hashlib
import json
import posixpath
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.host.file import bring
from vllm_ansible.host.kept_files import KeptError, KeptFiles
from vllm_ansible.plan.remote_code import trusts_remote_code
from vllm_ansible.record import plays
from vllm_ansible.record.progress import Progress

FILE = "compiled.tar.gz"
RECORD = "compiled.json"


class ActionModule(ActionBase):
    """Keep what the first host of an engine compiled, and give it to hosts that have nothing."""

    TRANSFERS_FILES = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what was done for one engine on this host."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "state": {"choices": ["taken", "kept"], "required": True},
                "engine": {"type": "dict", "required": True},
                "host": {"type": "dict", "required": True},
                "cluster": {"type": "str", "required": True},
                "fingerprint": {"type": "str", "required": True},
                "remote_code": {"type": "bool", "default": False},
                "kept_dir": {"type": "path", "required": True},
                "limit_bytes": {"type": "int", "default": 2147483648},
            }
        )
        self._variables = task_vars or {}
        engine, host = wanted["engine"], wanted["host"]
        if trusts_remote_code(engine["arguments"]) and not wanted["remote_code"]:
            # What code of the model's own left there would run on hosts that it never was on.
            return {**result, "changed": False, "key": "", "files": 0}
        kept = KeptFiles(Path(wanted["kept_dir"]), RECORD)
        key = compiled_key(wanted["cluster"], engine, host, wanted["fingerprint"])
        record, _ = kept.look(key)
        self._engine = {
            "cache": posixpath.join(host["cluster_dir"], "engines", engine["name"], "cache"),
            "user": host.get("service_user") or None,
        }
        told = {"changed": False, "key": key, "files": record["files"] if record else 0}
        if wanted["state"] == "taken":
            here = self._module("look")
            if record is None or "compiled" not in here or here["compiled"]["files"]:
                return {**result, **told, **_warning(here)}
            if self._task.check_mode:
                return {**result, **told, "changed": True}
            return {**result, **told, **self._take(kept.place(key) / FILE)}
        if record is not None or self._task.check_mode:
            return {**result, **told}
        return {**result, **told, **self._keep(kept, key, wanted["limit_bytes"])}

    def _take(self, archive: Path) -> dict[str, Any]:
        """Give this host what another one compiled."""
        there = self._connection._shell.join_path(self._make_tmp_path(), FILE)
        self._transfer_file(str(archive), there)
        done = self._module("present", archive=there)
        return {"changed": bool(done.get("changed")), **_warning(done)}

    def _keep(self, kept: KeptFiles, key: str, limit: int) -> dict[str, Any]:
        """Bring what this host compiled to the controller; nothing where it compiled nothing."""
        there = self._connection._shell.join_path(self._make_tmp_path(), FILE)
        done = self._module("packed", archive=there, limit_bytes=limit)
        if done.get("failed") or not done["packed"]["files"]:
            return _warning(done)
        packed = done["packed"]
        line = Progress(Display(), plays.stage(self._task.play), "what was compiled")
        writes = bring(
            there,
            packed["size"],
            lambda arguments: self._execute_module(
                module_name="file_piece", module_args=arguments, task_vars=self._variables
            ),
            lambda here: line.show("to this machine", here, packed["size"], "bytes"),
        )
        try:
            kept.keep(key, {**packed, "key": key, "file": FILE}, writes)
        except (KeptError, OSError) as error:
            return _warning({"failed": True, "msg": f"{kept.root} on this machine: {error}"})
        # What a run keeps on its own side is no change of a host.
        return {"changed": False, "files": packed["files"]}

    def _module(self, state: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._execute_module(
            module_name="engine_compiled",
            module_args={**self._engine, "state": state, **more},
            task_vars=self._variables,
        )
        return found


def _warning(done: Mapping[str, Any]) -> dict[str, Any]:
    """Return a warning where something failed: engines serve all the same, they start slower."""
    if not done.get("failed"):
        return {}
    told = f"what was compiled is not shared between hosts: {done.get('msg')}"
    return {"warnings": [f"{told}; vllm_share_compiled: never leaves it to each of them"]}


def compiled_key(
    cluster: str, engine: Mapping[str, Any], host: Mapping[str, Any], fingerprint: str
) -> str:
    """Return what hosts have in common that may use what one of them compiled.

    It is code: the hosts of one cluster trust each other with it, those of another one do not.
    """
    alike = [
        cluster,
        fingerprint,
        host["architecture"],
        host["accelerator_name"],
        engine["arguments"],
    ]
    alike += [engine["layout"], engine["model_source"], engine["model"]]
    return hashlib.sha256(json.dumps(alike, sort_keys=True).encode()).hexdigest()
