#!/usr/bin/python
"""Repair what the preflight found and what is safe to repair."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_repair
short_description: Repair what the preflight found and what is safe to repair
description:
  - Corrects the hosts file, enlarges shared memory, raises limits, reserves huge pages, loads a
    kernel module. Everything else that fails is left to people. Needs root.
author: The vllm-ansible authors
options:
  failing:
    description: Names of the checks that fail on this host.
    type: list
    elements: str
    required: true
  cluster:
    description: The cluster, whose services get the limits.
    type: str
    required: true
  supervisor:
    description: What starts the engine's processes.
    type: str
    choices: [systemd, supervisord]
    required: true
  limits:
    description: The limits that those processes ask for, by name.
    type: dict
    required: true
  hostname:
    description: The host's own name.
    type: str
    required: true
  address:
    description: What that name has to mean.
    type: str
    required: true
  reset_devices:
    description: PCI addresses of devices that may be reset. No process may use them.
    type: list
    elements: str
    default: []
  peer_module:
    description: The kernel module that lets network cards reach the memory of this host's devices.
    type: str
    default: ""
  etc:
    description: Where the system's configuration lies.
    type: path
    default: /etc
"""

EXAMPLES = r"""
- name: Repair what is safe to repair
  preflight_repair:
    failing: [hostname]
    cluster: demo
    supervisor: systemd
    limits: {memlock: infinity, nofile: "65536"}
    hostname: worker1
    address: 10.0.0.2
"""

RETURN = r"""
did:
  description: What was done, or in check mode would be, a sentence each.
  type: list
  elements: str
  returned: success
"""

import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.preflight.repair import Repair, plan, write


def content(path: str) -> str:
    """Return the content of a file; nothing if there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""


def apply(module: AnsibleModule, repair: Repair) -> None:
    """Do one repair, or fail with its command."""
    try:
        if repair.path:
            write(repair)
    except OSError as error:
        module.fail_json(
            msg=f"{repair.path} cannot be written: {error.strerror}",
            where=repair.path,
            fix="run it as root, or as an administrator write it: " + repair.content.strip(),
        )
    for command in repair.commands:
        status, output, errors = module.run_command(list(command))
        if status != 0:
            module.fail_json(
                msg=f"{shlex.join(command)} failed: {errors.strip() or output.strip()}",
                expected="exit status 0",
                found=f"exit status {status}",
                command=shlex.join(command),
                fix=f"as an administrator run: {shlex.join(command)}",
            )


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "failing": {"type": "list", "elements": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "supervisor": {"choices": ["systemd", "supervisord"], "required": True},
            "limits": {"type": "dict", "required": True},
            "hostname": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "reset_devices": {"type": "list", "elements": "str", "default": []},
            "peer_module": {"type": "str", "default": ""},
            "etc": {"type": "path", "default": "/etc"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    repairs = plan(asked, asked["failing"], content(f"{asked['etc']}/hosts"))
    if not module.check_mode:
        for repair in repairs:
            apply(module, repair)
    module.exit_json(changed=bool(repairs), did=[repair.told for repair in repairs])


if __name__ == "__main__":
    main()
