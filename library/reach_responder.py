#!/usr/bin/python
"""Answer for a while on the ports that engines will listen on."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_responder
short_description: Answer for a while on the ports that engines will listen on
description:
  - Starts a program, detached, that listens on the planned ports of one address and on a few ports
    of the range that the kernel hands out by itself. It ends by itself.
  - Only a holder of the cluster's key gets an answer; any other connection is closed.
  - A planned port that is taken is left to who has it, and reported.
author: The vllm-ansible authors
options:
  address:
    description: The address to listen on, of the data plane. Needed to start.
    type: str
  ports:
    description:
      - The planned ports of each engine, a list for each, and of what measures links. Where one of
        our own processes has a port of a list, its engine runs, and the others of the list are left
        alone.
    type: list
    elements: list
    default: []
  kernel_ports:
    description: How many ports of the kernel's own range to listen on besides; at least one.
    type: int
    default: 3
  cluster_dir:
    description: The cluster's directory; its records identify our own processes.
    type: path
    required: true
  tasks_dir:
    description: The directory of the tasks' status files.
    type: path
    required: true
  key_file:
    description: The secret file of the cluster that both ends prove to have. Needed to start.
    type: path
  user:
    description: User to run as, which needs root.
    type: str
  life_seconds:
    description: When it ends by itself.
    type: float
    default: 120
  state:
    description: V(stopped) ends it and removes its status.
    type: str
    choices: [started, stopped]
    default: started
attributes:
  check_mode:
    description: Nothing is started or stopped. The ports are still checked.
    support: full
"""

EXAMPLES = r"""
- name: Answer on the planned ports
  reach_responder:
    address: 10.0.0.5
    ports: [[8000, 20000, 20001], [8001, 20100, 20101]]
    cluster_dir: /opt/vllm-ansible/demo
    tasks_dir: /opt/vllm-ansible/demo/tasks
    key_file: /opt/vllm-ansible/demo/secrets/ray_token
    user: vllm-demo
  register: __reach_responder
"""

RETURN = r"""
responder:
  description:
    - C(address); C(ports), the ranges that peers have to reach; C(answers), ports that it answers
      on itself, the best first; C(own), planned ports that our own processes have; C(strangers),
      C(port), C(pid) and C(who) of those that others have; C(left), ranges that are left to
      engines that run; C(kernel), its ports of the kernel's range.
  type: dict
  returned: when O(state) is V(started)
answered:
  description: Whether it ran until it was stopped now.
  type: bool
  returned: when O(state) is V(stopped)
"""

import os
import time
from contextlib import suppress
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.process.family import until
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.reach.ports import fold, of_the_kernel, sort_out
from ansible.module_utils.vllm_ansible.node.reach.responder import work
from ansible.module_utils.vllm_ansible.node.reach.wire import key_from

NAME = "reach"
START_SECONDS = 20.0
# Whoever else looked for free ports at the same moment may have been faster.
TRIES = 3


def begin(wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    """Start it anew, and return what it listens on."""
    if not check:
        end(wanted, check)
    key = key_from(wanted["key_file"])
    address = wanted["address"]
    engines = [[int(port) for port in ports] for ports in wanted["ports"]]
    planned = {port for ports in engines for port in ports}
    for left in reversed(range(TRIES)):
        found = sort_out(address, engines, wanted["cluster_dir"])
        kernel = of_the_kernel(address, max(1, wanted["kernel_ports"]), planned)
        # The last one echoes datagrams; it is of the kernel's range, where nothing of ours can be.
        listening = [*found["free"], *kernel]
        if check or _start(wanted, listening, key, bool(left)):
            break
    responder = {
        "address": address,
        "ports": fold([*planned.difference(found["left"]), *kernel]),
        "answers": [*reversed(kernel), *found["free"]],
        "own": found["own"],
        "strangers": found["strangers"],
        "left": fold(found["left"]),
        "kernel": kernel,
    }
    return {"changed": True, "responder": responder}


def _start(wanted: dict[str, Any], listening: list[int], key: bytes, again: bool) -> bool:
    """Start the program and wait until it says that it listens on all its ports.

    Returns False where a port was taken in between and it is worth while to look `again`.
    """
    where = wanted["tasks_dir"]
    task = work(key, wanted["address"], listening, wanted["life_seconds"])
    background.start(where, NAME, task, user=wanted["user"], digest=str(time.time_ns()))

    # Its own word: a listener on one of its ports may be somebody else's.
    def listens() -> bool:
        return bool(background.look(where, NAME)["progress"]["done"] == len(listening))

    until(lambda: listens() or background.look(where, NAME)["state"] != "running", START_SECONDS)
    status = background.look(where, NAME, 10)
    if listens():
        return True
    if again and status.get("details", {}).get("taken"):
        return False
    raise Failure(
        f"the responder does not listen: {status.get('message') or status['state']}",
        expected=f"a program that listens on {len(listening)} ports of {wanted['address']}",
        found=status.get("message") or " / ".join(status["log_tail"]) or status["state"],
        where=status["log"],
        fix="run the stage again: a port may have been taken in between",
    )


def end(wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    """Stop it, and remove its status and its log."""
    stopped = background.stop(wanted["tasks_dir"], NAME, check)
    paths = background.paths(wanted["tasks_dir"], NAME)
    left = [path for path in paths if os.path.exists(path)]
    if not check:
        for path in left:
            with suppress(FileNotFoundError):
                os.unlink(path)
    return {"changed": stopped or bool(left), "answered": stopped}


def main() -> None:
    """Start or stop, and report."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str"},
            "ports": {"type": "list", "elements": "list", "default": []},
            "kernel_ports": {"type": "int", "default": 3},
            "cluster_dir": {"type": "path", "required": True},
            "tasks_dir": {"type": "path", "required": True},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "no_log": False},
            "user": {"type": "str"},
            "life_seconds": {"type": "float", "default": 120},
            "state": {"choices": ["started", "stopped"], "default": "started"},
        },
        required_if=[("state", "started", ["address", "key_file"])],
        supports_check_mode=True,
    )
    work_of_state = begin if module.params["state"] == "started" else end
    try:
        result = work_of_state(module.params, module.check_mode)
    except (Failure, ProcessError) as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
