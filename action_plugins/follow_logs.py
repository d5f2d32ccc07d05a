"""Print the logs of a host's processes, and go on while they grow if asked to."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

# A log file tells nobody that it has grown: it has to be looked at.
POLL_SECONDS = 1.0


def too_many(hosts: int, workers: int) -> dict[str, Any]:
    """Return the refusal to follow more hosts than there are workers: the rest would never start.

    It names no host, so that all hosts say the same and it is told once.
    """
    return {
        "msg": f"the logs of {hosts} hosts cannot be followed by {workers} workers",
        "expected": f"at most {workers} hosts, since a host that is followed keeps its worker",
        "found": f"{hosts} hosts",
        "where": "--limit",
        "fix": "name the hosts of one engine with --limit, or allow more workers with "
        f"ANSIBLE_FORKS={hosts}",
    }


class ActionModule(ActionBase):
    """Takes the options of log_lines_info and `follow`; every host's lines carry its name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print, and return only when there is nothing to follow or somebody interrupts."""
        result = dict(super().run(tmp, task_vars))
        arguments = dict(self._task.args)
        follow = bool(arguments.pop("follow", False))
        variables = task_vars or {}
        host = variables["inventory_hostname"]
        hosts, workers = len(variables["ansible_play_batch"]), int(variables["ansible_forks"])
        if follow and hosts > workers:
            return {**result, "failed": True, **too_many(hosts, workers)}
        display = Display()
        offsets: dict[str, int] = {}
        while True:
            answer = self._execute_module(
                module_name="log_lines_info",
                module_args={**arguments, "offsets": offsets},
                task_vars=task_vars,
            )
            if answer.get("failed"):
                return dict(answer)
            for process, log in answer["logs"].items():
                offsets[process] = log["offset"]
                for line in log["lines"]:
                    display.display(f"{host} {process} | {line}")
            if not follow:
                paths = [log["path"] for log in answer["logs"].values()]
                return {**result, "changed": False, "paths": paths}
            time.sleep(POLL_SECONDS)
