#!/usr/bin/python
"""Run a command detached from the connection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: background_command
short_description: Run a command that outlives the connection
description:
  - Starts a command detached and returns at once. C(background_wait) waits for it and reports.
  - A command that runs or is done, with the same digest, is not started again.
    One that was interrupted or has failed is.
author: The vllm-ansible authors
options:
  tasks_dir:
    description: The directory of the tasks' status files.
    type: path
    required: true
  name:
    description: Name of the task. With V(stopped) it may be omitted to mean O(names), or all.
    type: str
  names:
    description: With V(stopped), the names of several tasks.
    type: list
    elements: str
  argv:
    description: The command. Needed to start.
    type: list
    elements: str
  environment:
    description: Environment in addition to what the connection has. Never secrets.
    type: dict
    default: {}
  secret_environment:
    description:
      - Files on the host, by the name under which the command finds their content in its
        environment. Nothing but the command reads them, as the user it runs as.
    type: dict
    default: {}
  chdir:
    description: Directory to run in.
    type: path
  umask:
    description: Mask of the files it makes, in octal.
    type: str
  user:
    description: User to run as, which needs root.
    type: str
  creates:
    description: What the command makes; when it is missing, a command that was done runs again.
    type: path
  digest:
    description: Anything else whose change means that the command has to run again.
    type: str
    default: ''
  state:
    description: V(stopped) ends the command, if it runs, and everything it started.
    type: str
    choices: [started, stopped]
    default: started
attributes:
  check_mode:
    description: Nothing is started or stopped; the answer is that of a real run.
    support: full
"""

EXAMPLES = r"""
- name: Install the engine
  background_command:
    tasks_dir: /opt/vllm-ansible/demo/tasks
    name: environment
    argv: [uv, pip, sync, requirements.txt]
    creates: /opt/vllm-ansible/demo/environments/0123456789ab/bin/vllm
"""

RETURN = r"""
reason:
  description: Why it was started, or why not.
  type: str
  returned: success
status:
  description: The task's status, as background_info reports it.
  type: dict
  returned: when O(state) is V(started)
stopped:
  description: The tasks that were stopped.
  type: list
  elements: str
  returned: when O(state) is V(stopped)
"""

import hashlib
import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process.background import Command, names, start, stop
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError

PART_OF_DIGEST = ("argv", "environment", "secret_environment", "chdir", "umask", "user", "digest")


def begin(wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    """Start the command unless it runs or is done."""
    text = json.dumps([wanted[key] for key in PART_OF_DIGEST], sort_keys=True)
    command = Command(
        argv=tuple(wanted["argv"]),
        environment={str(key): str(value) for key, value in wanted["environment"].items()},
        secret_environment={
            str(key): str(value) for key, value in wanted["secret_environment"].items()
        },
        directory=wanted["chdir"],
        umask=None if wanted["umask"] is None else int(wanted["umask"], 8),
    )
    result: dict[str, Any] = start(
        wanted["tasks_dir"],
        wanted["name"],
        command,
        user=wanted["user"],
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        again=wanted["creates"] is not None and not os.path.exists(wanted["creates"]),
        check=check,
    )
    return result


def end(wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    """Stop one command, those that are named, or all."""
    given = [wanted["name"]] if wanted["name"] is not None else wanted["names"]
    asked = names(wanted["tasks_dir"]) if given is None else given
    stopped = [name for name in asked if stop(wanted["tasks_dir"], name, check)]
    return {"changed": bool(stopped), "reason": "it runs" if stopped else "", "stopped": stopped}


def main() -> None:
    """Start or stop, and report."""
    module = AnsibleModule(
        argument_spec={
            "tasks_dir": {"type": "path", "required": True},
            "name": {"type": "str"},
            "names": {"type": "list", "elements": "str"},
            "argv": {"type": "list", "elements": "str"},
            "environment": {"type": "dict", "default": {}},
            # Names of files, not secrets: no_log would hide them in every error.
            "secret_environment": {"type": "dict", "default": {}, "no_log": False},
            "chdir": {"type": "path"},
            "umask": {"type": "str"},
            "user": {"type": "str"},
            "creates": {"type": "path"},
            "digest": {"type": "str", "default": ""},
            "state": {"choices": ["started", "stopped"], "default": "started"},
        },
        required_if=[("state", "started", ["name", "argv"])],
        supports_check_mode=True,
    )
    work = begin if module.params["state"] == "started" else end
    try:
        result = work(module.params, module.check_mode)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
