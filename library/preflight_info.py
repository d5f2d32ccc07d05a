#!/usr/bin/python
"""Look at all of a host that keeps engines over several hosts down."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_info
short_description: Look at all of a host that keeps engines over several hosts down
description:
  - One look for everything that the gate preflight judges. It needs no root; without it the kernel
    log and the environment of other users' processes stay closed.
  - Changes nothing but for a scratch file, made and removed in each directory that is tried, and a
    service of systemd that prints its own limits and ends.
author: The vllm-ansible authors
options:
  accelerator:
    description: What this host computes with, whose devices are looked at where it is known how.
    type: str
    required: true
  cluster:
    description: The cluster. Units of systemd carry its name.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on the host. Processes recorded there are its own.
    type: path
    required: true
  run_dir:
    description: The directory in which a supervisord of the cluster keeps its number.
    type: path
    required: true
  supervisor:
    description: What starts the engine's processes.
    type: str
    choices: [systemd, supervisord]
    required: true
  limits:
    description: The limits that those processes ask for, by name.
    type: dict
    default: {}
  interface:
    description: Interface of the data plane.
    type: str
    required: true
  peers:
    description: Addresses on the data plane of the other hosts, by their names.
    type: dict
    default: {}
  directories:
    description: Directories to look at, by what they are for.
    type: dict
    default: {}
  write_as:
    description:
      - As which user a real write is tried in which of O(directories), by what they are for.
        An empty one is the user of this module; only root can be another.
    type: dict
    default: {}
  environment:
    description: The engine's environment, in which kernels are looked for. Empty is none.
    type: str
    default: ""
  programs:
    description:
      - The variables C(PATH), C(CUDA_HOME) and C(CUDA_PATH) of each engine, by its name. What its
        kernels are compiled with is looked for by them.
    type: dict
    default: {}
  write:
    description: Whether writes are tried at all. They never are in check mode.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Look at what serving needs of this host
  preflight_info:
    accelerator: cpu
    cluster: demo
    cluster_dir: /opt/vllm-ansible/demo
    run_dir: /run/vllm-demo
    supervisor: systemd
    limits: {memlock: infinity, nofile: "65536"}
    interface: eth1
    peers: {worker: 10.0.0.2}
    directories: {cluster: /opt/vllm-ansible/demo}
    write_as: {cluster: ""}
  register: __preflight_look
"""

RETURN = r"""
look:
  description:
    - What was found, in the sections C(system), C(limits), C(memory), C(data_plane), C(rdma),
      C(storage) and, with accelerators, C(devices) and C(kernels). Sizes are in bytes.
    - C(running) are the processes of the cluster.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.preflight.look import look


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "accelerator": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "run_dir": {"type": "path", "required": True},
            "supervisor": {"choices": ["systemd", "supervisord"], "required": True},
            "limits": {"type": "dict", "default": {}},
            "interface": {"type": "str", "required": True},
            "peers": {"type": "dict", "default": {}},
            "directories": {"type": "dict", "default": {}},
            "write_as": {"type": "dict", "default": {}},
            "environment": {"type": "str", "default": ""},
            "programs": {"type": "dict", "default": {}},
            "write": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    asked = {**module.params, "write": module.params["write"] and not module.check_mode}
    module.exit_json(changed=False, look=look(asked, module.run_command))


if __name__ == "__main__":
    main()
