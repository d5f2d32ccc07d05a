"""Wait for a background task on every host, with one progress line for the cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import constants
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.record import events, plays
from vllm_ansible.record.host_progress import ClusterLine, Silence, of_bar

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "tasks_dir": {"type": "str", "required": True},
    "label": {"type": "str"},
    "hosts": {"type": "list", "elements": "str"},
    "started": {"type": "str"},
    "silence_seconds": {"type": "float", "default": 300},
    "poll_seconds": {"type": "float", "default": 5},
    "counted": {"type": "str", "default": ""},
    "log_lines": {"type": "int", "default": 20},
    "fix": {"type": "str", "default": "Run the same command again: the task starts anew."},
}


class ActionModule(ActionBase):
    """Follow name in tasks_dir until it is done; its result comes back as result.

    An empty name, as modules return when there is nothing left to do, is waited for no longer. The
    bound is on silence, not on total time: as long as progress or log moves, it waits. hosts
    are those that take part; without them those that have the variable named by started, which the
    start registered, else all of the play. label names the line. counted is what a progress bar of
    the program counts: nothing else of what that prints is shown.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Poll this host, report, and return how the task ended."""
        variables = task_vars or {}
        result = dict(super().run(tmp, variables))
        _, wanted = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if self._task.check_mode:
            return {
                **result,
                "skipped": True,
                "msg": "Check mode: nothing to wait for.",
            }
        if not wanted["name"]:
            # What another run had begun may end between the look at it and the start.
            return {**result, "changed": False, "msg": "Nothing was started: it is there already."}
        host = variables["inventory_hostname"]
        label = wanted["label"] or wanted["name"]
        line = ClusterLine(
            events.current() or constants.DEFAULT_LOCAL_TMP,
            label,
            wanted["hosts"] or self._hosts(variables, host, wanted["started"]),
            Display(),
            stage=plays.stage(self._task.play),
            key=str(self._task._uuid),
        )
        try:
            status, silent = self._follow(line, host, wanted, variables)
        finally:
            line.close()
        if status["state"] == "done":
            return {**result, "changed": False, "result": status["result"], "status": status}
        # Its log lies where the task was played.
        place = self._task.delegate_to or host
        return {**result, **failure(label, place, wanted, status, silent)}

    def _hosts(self, variables: Mapping[str, Any], host: str, started: str | None) -> list[str]:
        """Return the hosts whose workers run this task, as far as one of them can know."""
        if self._task.run_once:
            return [host]
        hosts = list(variables["ansible_play_batch"])
        if started is None:
            return hosts
        starts = {one: variables["hostvars"][one].get(started) for one in hosts}
        return [
            one
            for one, start in starts.items()
            if start and not start.get("skipped") and start.get("task") != ""
        ]

    def _follow(
        self, line: ClusterLine, host: str, wanted: Mapping[str, Any], variables: dict[str, Any]
    ) -> tuple[dict[str, Any], float]:
        """Look until the task has ended or been silent for too long."""
        silence = Silence(wanted["silence_seconds"], time.monotonic())
        status: dict[str, Any] = {"state": "unseen", "progress": {}, "log_tail": []}
        wait_seconds = 0.0  # what is done already costs one look
        while True:
            status = self._look(wanted, wait_seconds, variables) or status
            wait_seconds = wanted["poll_seconds"]
            progress = status["progress"]
            moved = (status["state"], progress, status.get("log_size"))
            silent = silence.observe(moved, time.monotonic())
            done = status["state"] == "done"
            over = status["state"] not in ("running", "unseen")
            failed = not done and (over or silence.broken(time.monotonic()))
            text = f"{status['state']}, {progress.get('text', '')}" if failed else None
            shown = progress
            if wanted["counted"]:
                shown = of_bar(progress.get("text", ""), wanted["counted"])
            line.report(host, **{**shown, **({"text": text} if text else {})}, finished=done)
            if over or failed:
                return status, silent

    def _look(
        self, wanted: Mapping[str, Any], wait_seconds: float, variables: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Look once; a connection that fails counts as silence, for the task outlives it."""
        arguments = {key: wanted[key] for key in ("name", "tasks_dir", "log_lines")}
        try:
            answer = self._execute_module(
                module_name="background_info",
                module_args={**arguments, "wait_seconds": wait_seconds},
                task_vars=variables,
            )
        except AnsibleConnectionFailure as error:
            Display().vv(f"no answer: {error}")
            time.sleep(wait_seconds)  # the module would have waited
            return None
        if "status" not in answer:
            message = answer.get("msg", "background_info gave no answer")
            return {"state": "failed", "message": message, "progress": {}, "log_tail": []}
        status: dict[str, Any] = answer["status"]
        return status


def failure(
    label: str, host: str, wanted: Mapping[str, Any], status: Mapping[str, Any], silent: float
) -> dict[str, Any]:
    """Return what a failed wait says."""
    last = status["progress"].get("text") or "nothing yet"
    stalled = status["state"] == "running"
    message = {
        "running": f"nothing has moved for {silent:.0f} s",
        "unseen": f"no answer for {silent:.0f} s",
        "absent": "it was never started on this host",
    }.get(status["state"], status.get("message") or status["state"])
    found = {
        "expected": f"progress at least every {wanted['silence_seconds']:.0f} s"
        if stalled
        else "a task that ends well",
        "found": f"{message}; its last progress was: {last}",
        "where": f"{host}:{status.get('log', wanted['tasks_dir'])}",
        "fix": wanted["fix"],
        **(status.get("details") or {}),
    }
    return {
        "failed": True,
        "msg": f"{label} {'stalled' if stalled else 'failed'}: {message}.",
        **found,
        "log_tail": status["log_tail"],
        "status": dict(status),
    }
