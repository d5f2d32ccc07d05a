"""Say why an engine did not come up: the first failing line over its ranks, and what mends it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: diagnose
short_description: Name the first failure in the logs of many ranks
description:
  - Runs on the controller. Reads the tails of logs that were collected before, finds the line in
    which the failure began and matches it against the known ones.
  - Holds the causes of that line against what the gates of this run have found of its host, and
    says which of them are excluded. Lines of hosts are ordered by their clocks as the stage verify
    has measured them.
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
  logs_of:
    description:
      - Name of the variable in which every host keeps what M(engine_logs_info) returned, in place
        of O(logs).
    type: str
  engine:
    description: Name of the engine whose logs alone count, of those that O(logs_of) holds.
    type: str
  verdict:
    description:
      - What the wait before this task found, with C(ready), or C(expected), C(found), C(cause),
        C(fix) and C(command).
    type: dict
    default: {}
  warn: {description: Whether to warn of it in place of failing., type: bool, default: false}
"""

EXAMPLES = r"""
- name: Name the first failure of each engine
  diagnose:
    title: The engine {{ item.key }} did not become ready
    stage: serve
    logs_of: __vllm_logs
    engine: "{{ item.key }}"
    verdict: "{{ item.value }}"
  loop: "{{ __vllm_verdicts.unready | dict2items }}"
  run_once: true
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, hosts_that_answer, of_each_host
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.record.diagnosis.evidence import Evidence, of_directory, of_kept
from vllm_ansible.record.diagnosis.verdict import diagnose, texts
from vllm_ansible.record.events import current
from vllm_ansible.record.redact import redact_text, visible


class ActionModule(ActionBase):
    """Hand the tails to the diagnosis and return what it says."""

    _VALID_ARGS = frozenset({"title", "stage", "logs", "logs_of", "engine", "verdict", "warn"})
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail with the diagnosis, or return ok when there is nothing to diagnose."""
        super().run(tmp, task_vars)
        arguments = self._task.args
        variables = task_vars or {}
        if not arguments.get("title"):
            raise AnsibleActionFail("expected a `title` that says what did not happen, found none")
        try:
            logs = texts(arguments.get("logs") or self._of_hosts(arguments, variables))
        except TypeError as error:
            raise AnsibleActionFail(str(error)) from error
        except PlanError as error:
            return {"failed": True, **as_result(error.problems)}
        verdict = dict(arguments.get("verdict") or {})
        directory = current()
        if directory and not verdict.get("ready"):
            keep(directory, logs)
        known = evidence_of(directory, variables)
        stage = arguments.get("stage")
        found = diagnose(str(arguments["title"]), logs, verdict, stage, known)
        if not boolean(arguments.get("warn", False)) or not found["failed"]:
            return found
        parts = [str(found[name]) for name in ("found", "where", "cause") if name in found]
        return {**found, "failed": False, "warnings": [f"{found['msg']}; {'; '.join(parts)}"]}

    @staticmethod
    def _of_hosts(arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the tails that every host has collected, by host and process."""
        if not arguments.get("logs_of"):
            return {}
        # A host that was lost before it could collect its logs has none; one that failed may have.
        answer, wanted = hosts_that_answer(variables), arguments["logs_of"]
        hosts = [
            host
            for host in hosts_of_this_run(variables)
            if host in answer or wanted in variables["hostvars"][host]
        ]
        found = of_each_host(variables, hosts, wanted)
        engine = arguments.get("engine")
        return {
            host: {
                name: text
                for name, text in one.get("tails", {}).items()
                if engine is None or name in one["of_engine"].get(engine, ())
            }
            for host, one in found.items()
        }


def evidence_of(run_dir: Path | None, variables: Mapping[str, Any]) -> Evidence:
    """Return what this run's gates have found, and before it the stage verify; looks at no host."""
    kept = variables.get("verification_kept")
    found = of_kept(kept) if isinstance(kept, Mapping) else Evidence()
    return found.joined(of_directory(run_dir)) if run_dir else found


def keep(run_dir: Path, logs: dict[str, str]) -> None:
    """Put every collected log beside the record of the run, to be read when hosts are gone."""
    folder = run_dir / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    for rank, text in logs.items():
        (folder / f"{rank.replace(' ', '-').replace('/', '_')}.log").write_text(
            visible(redact_text(text))
        )
