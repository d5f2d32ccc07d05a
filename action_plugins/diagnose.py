"""Say why an engine did not come up: the first failing line over its ranks, and what mends it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: diagnose
short_description: Name the first failure in the logs of many ranks
description:
  - Runs on the controller. Reads the tails of logs that were collected before, finds the line in
    which the failure began and matches it against the known ones.
  - Fails with what it found, unless the verdict says that all is well.
options:
  title: {description: What did not happen, as a sentence., type: str, required: true}
  stage: {description: The stage in which it should have happened., type: str}
  logs:
    description:
      - Tails of logs, as a mapping of host to a mapping of process to text.
      - A list of mappings with C(host), C(process) and C(text) will do as well.
    type: raw
    default: {}
  verdict:
    description:
      - What the wait before this task found, with C(ready), or C(expected), C(found), C(cause),
        C(fix) and C(command).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Name the first failure
  diagnose:
    title: The engine smollm2 did not become ready
    stage: serve
    logs: "{{ __vllm_tails }}"
    verdict: "{{ __vllm_ready }}"
  run_once: true
"""

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from vllm_ansible.diagnosis.verdict import diagnose, texts


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Hand the tails to the diagnosis and return what it says."""

    _VALID_ARGS = frozenset({"title", "stage", "logs", "verdict"})
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail with the diagnosis, or return ok when there is nothing to diagnose."""
        super().run(tmp, task_vars)
        arguments = self._task.args
        if not arguments.get("title"):
            raise AnsibleActionFail("expected a `title` that says what did not happen, found none")
        try:
            logs = texts(arguments.get("logs") or {})
        except TypeError as error:
            raise AnsibleActionFail(str(error)) from error
        verdict = dict(arguments.get("verdict") or {})
        return diagnose(str(arguments["title"]), logs, verdict, arguments.get("stage"))
