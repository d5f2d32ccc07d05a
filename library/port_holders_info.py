#!/usr/bin/python
"""Find out who listens on TCP ports of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: port_holders_info
short_description: Find out who listens on TCP ports of a host
description:
  - One look at the kernel's tables, on every address. Changes nothing.
author: The vllm-ansible authors
options:
  ports:
    description: Ports to look at.
    type: list
    elements: int
    required: true
"""

EXAMPLES = r"""
- name: See who holds the ports
  port_holders_info:
    ports: [8000, 20000]
"""

RETURN = r"""
held:
  description: C(port), C(pid) where it may be known, and C(who), for each port that is taken.
  type: list
  elements: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process.port_holders import holders


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={"ports": {"type": "list", "elements": "int", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, held=holders(module.params["ports"]))


if __name__ == "__main__":
    main()
