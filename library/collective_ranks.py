#!/usr/bin/python
"""Start the ranks of a host that measure collectives."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collective_ranks
short_description: Start the ranks of a host that measure collectives
description:
  - Puts their program in place and starts it detached. The ranks connect to the coordinator of
    M(collective_check), do what it asks, and end when it hangs up or does not come within a minute.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on the host.
    type: path
    required: true
  program:
    description: The files of the program by name; C(rank.py) is the one to run.
    type: dict
    required: true
  python:
    description: A Python that has PyTorch, the engine's own.
    type: path
    required: true
  host:
    description: Name of this host, as the coordinator knows it.
    type: str
    required: true
  address:
    description: Address of this host on the data plane.
    type: str
    required: true
  interface:
    description: Interface of this host on the data plane.
    type: str
    required: true
  ranks:
    description: How many ranks to start, one for each accelerator.
    type: int
    required: true
  backend:
    description: The library that carries the traffic.
    type: str
    choices: [gloo, nccl, eccl]
    required: true
  device:
    description: What the driver calls the accelerators, where PyTorch does not report it.
    type: str
    default: ""
  coordinator:
    description: Address of the coordinator.
    type: str
    required: true
  port:
    description: Port of the coordinator.
    type: int
    required: true
  key_file:
    description: A secret that all hosts of the cluster have. Both sides prove that they know it.
    type: path
    required: true
  environment:
    description: Environment of the ranks. Never secrets.
    type: dict
    default: {}
  user:
    description: User to run as, which needs root.
    type: str
attributes:
  check_mode:
    description: Nothing is written or started.
    support: full
"""

EXAMPLES = r"""
- name: Start the ranks
  collective_ranks:
    cluster_dir: /opt/vllm-ansible/r1
    program: "{{ collectives_program }}"
    python: /opt/vllm-ansible/r1/environments/0123456789ab/bin/python
    host: "{{ inventory_hostname }}"
    address: 10.0.0.3
    interface: ens1
    ranks: 8
    backend: nccl
    coordinator: 10.0.0.2
    port: 20012
    key_file: /opt/vllm-ansible/r1/secrets/ray_token
"""

RETURN = r"""
task:
  description: The background task of the ranks; its log is theirs.
  type: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError

TASK = "collective-ranks"
# What ranks are told as they are asked for.
OPTIONS = ("coordinator", "port", "host", "address", "interface", "backend", "device", "ranks")


def write(directory: str, program: dict[str, str]) -> None:
    """Put the program's files in place; they hold no secret and the service must read them."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name, content in program.items():
        path = os.path.join(directory, os.path.basename(name))
        with open(f"{path}.new", "w", encoding="utf-8") as handle:
            handle.write(content)
        os.chmod(f"{path}.new", 0o644)
        os.replace(f"{path}.new", path)


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "program": {"type": "dict", "required": True},
            "python": {"type": "path", "required": True},
            "host": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "interface": {"type": "str", "required": True},
            "ranks": {"type": "int", "required": True},
            "backend": {"choices": ["gloo", "nccl", "eccl"], "required": True},
            "device": {"type": "str", "default": ""},
            "coordinator": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "required": True, "no_log": False},
            "environment": {"type": "dict", "default": {}},
            "user": {"type": "str"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if not os.path.exists(wanted["python"]):
        module.fail_json(
            msg="the ranks need the engine's environment",
            expected="the engine's Python",
            found=f"nothing at {wanted['python']}",
            where=wanted["cluster_dir"],
            fix="run the stage install first",
        )
    if module.check_mode:
        module.exit_json(changed=False, task=TASK)
    directory = os.path.join(wanted["cluster_dir"], "collectives")
    argv = [wanted["python"], os.path.join(directory, "rank.py")]
    for option in OPTIONS:
        argv.append(f"--{option}={wanted[option]}")
    command = background.Command(
        argv=(*argv, f"--key-file={wanted['key_file']}"),
        environment={str(key): str(value) for key, value in wanted["environment"].items()},
    )
    tasks_dir = os.path.join(wanted["cluster_dir"], "tasks")
    try:
        # Those of a run that was cut off would come to the coordinator of this one.
        background.stop(tasks_dir, TASK)
        write(directory, wanted["program"])
        background.start(tasks_dir, TASK, command, user=wanted["user"], again=True)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, task=TASK)


if __name__ == "__main__":
    main()
