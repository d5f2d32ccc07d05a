#!/usr/bin/python
"""Look at a host once, for everything the controller decides from."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Look at a host once, for everything the controller decides from
description:
  - Reports user, privileges, init system, distribution, addresses with their networks,
    memory, disk, boot and accelerators. Changes nothing and needs no privileges.
author: The vllm-ansible authors
options:
  disk_path:
    description:
      - Where the cluster's files are or will be; free space is reported for it, as C(disk_free).
      - Empty reports it for the places that are ours with root and with none.
    type: str
    required: true
  libraries:
    description: Shared libraries to look for, by the name a linker uses (V(numa)).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Look at the host
  host_info:
    disk_path: /opt
  register: __site_look
"""

RETURN = r"""
host:
  description: The facts. Sizes are in bytes.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.system.host import look


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "disk_path": {"type": "str", "required": True},
            "libraries": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    module.exit_json(
        changed=False, host=look(module.params["disk_path"], module.params["libraries"])
    )


if __name__ == "__main__":
    main()
