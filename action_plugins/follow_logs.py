"""Print the logs of a host's processes, and go on while they grow if asked to."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

# A log file tells nobody that it has grown: it has to be looked at.
POLL_SECONDS = 1.0


class ActionModule(ActionBase):
    """Takes the options of log_lines_info and `follow`; every host's lines carry its name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print, and return only when there is nothing to follow or somebody interrupts."""
        result = dict(super().run(tmp, task_vars))
        arguments = dict(self._task.args)
        follow = bool(arguments.pop("follow", False))
        host = (task_vars or {})["inventory_hostname"]
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
