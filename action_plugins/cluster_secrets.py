"""See that the keys of a cluster exist on the controller, before any host needs them."""

from __future__ import annotations

import base64
import secrets
import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.state_owner import claim_for_run
from vllm_ansible.provision import files as kept

NAMES = ("ray_token", "api_key")


def keep(path: Path, content: str) -> None:
    """Write a secret that only its owner can read, in a directory only its owner can enter."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    # Whole and on the disk before it has its name: an empty key would count for ever.
    kept.write(path, content)


def is_spoilt(key: str) -> bool:
    """Tell whether a key that we made is none that vLLM can be given.

    A write that was cut off leaves it empty, and so keys of earlier versions may be. vLLM takes
    what begins with a dash for its next argument, so no engine ever ran with one.
    """
    return not key.strip() or key.startswith("-")


class ActionModule(ActionBase):
    """Run on the head: take the keys it has, else the user's own, else make new ones.

    Only where they lie is returned, never what they are.
    """

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `files`, the path of each secret on the controller, and `made`."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "state_dir": {"type": "path", "required": True},
                "head_directory": {"type": "path", "required": True},
                "given": {"type": "dict", "default": {}},
            }
        )
        files, made = {}, []
        for name in NAMES:
            given = wanted["given"].get(name)
            path = Path(given or f"{wanted['state_dir']}/{name}")
            files[name] = str(path)
            spoilt = path.exists() and is_spoilt(path.read_text())
            if given and path.exists() and not path.read_text().strip():
                raise AnsibleActionFail(
                    f"the secret {name} in {path} is empty; expected one line; put the key there"
                )
            spoilt = spoilt and not given
            if (path.exists() and not spoilt) or self._task.check_mode:
                continue
            if given:
                # Not ours to make: neither the file nor the mode of the directory it should lie in.
                raise AnsibleActionFail(f"the secret {name} is expected in {path}: no such file")
            made.append(name)
            head = f"{wanted['head_directory']}/{name}"
            known = self._read(head, task_vars)
            path.unlink(missing_ok=True)
            keep(path, known if known and not is_spoilt(known) else secrets.token_hex(32))
        state = Path(wanted["state_dir"])
        if state.is_dir() and not self._task.check_mode:
            claim_for_run(state, task_vars or {})
        return {**result, "changed": bool(made), "files": files, "made": made}

    def _read(self, path: str, task_vars: dict[str, Any] | None) -> str:
        """Return what the head has, empty when it has nothing: a clone without state/ joins in."""
        answer = self._execute_module(
            module_name="ansible.legacy.slurp", module_args={"src": path}, task_vars=task_vars
        )
        if answer.get("failed") and "not found" not in str(answer.get("msg", "")):
            # A new key in place of one that is there would restart every engine.
            raise AnsibleActionFail(f"the secret in {path} cannot be read: {answer.get('msg')}")
        return base64.b64decode(answer.get("content", "")).decode()
