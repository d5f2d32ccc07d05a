#!/usr/bin/python
"""Look at background tasks."""

from __future__ import annotations

DOCUMENTATION = r"""
module: background_info
short_description: Look at one background task, or at all of them
description:
  - Reports how far a task is that was started detached on the host. Changes nothing.
  - A task whose process is gone without having said so is reported as died.
author: The vllm-ansible authors
options:
  tasks_dir:
    description: The directory of the tasks' status files.
    type: path
    required: true
  name:
    description: The task. All of them when omitted.
    type: str
  log_lines:
    description: How many of the last lines of the log to return.
    type: int
    default: 0
  wait_seconds:
    description: Look again until O(name) no longer runs, but no longer than this.
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Look at the download
  background_info:
    tasks_dir: /opt/vllm-ansible/demo/tasks
    name: weights
  register: __weights_download
"""

RETURN = r"""
status:
  description: State (absent, running, done, failed, died), progress, message, result and log.
  type: dict
  returned: when O(name) is given
tasks:
  description: The status of every task by name.
  type: dict
  returned: when O(name) is omitted
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process.background import look, names
from ansible.module_utils.vllm_ansible.node.process.family import until
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "tasks_dir": {"type": "path", "required": True},
            "name": {"type": "str"},
            "log_lines": {"type": "int", "default": 0},
            "wait_seconds": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    directory, lines = module.params["tasks_dir"], module.params["log_lines"]
    seconds = module.params["wait_seconds"]
    try:
        if module.params["name"] is not None:
            name = module.params["name"]
            until(lambda: look(directory, name)["state"] != "running", seconds)
            status = look(directory, name, lines)
            module.exit_json(changed=False, status=status)
        found = {name: look(directory, name, lines) for name in names(directory)}
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, tasks=found)


if __name__ == "__main__":
    main()
