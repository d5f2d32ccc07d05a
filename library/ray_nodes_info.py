#!/usr/bin/python
"""Ask a Ray head which nodes have joined."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ray_nodes_info
short_description: Ask a Ray head which nodes have joined
description:
  - One look through the state API of the dashboard on the head's loopback. Changes nothing.
author: The vllm-ansible authors
options:
  dashboard_port:
    description: Port of the dashboard on the head's loopback address.
    type: int
    required: true
  token_file:
    description: File on the head that holds the Ray token.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Look at the Ray nodes
  ray_nodes_info:
    dashboard_port: 20001
    token_file: /opt/vllm-ansible/r1/secrets/ray_token
"""

RETURN = r"""
nodes:
  description: Address, alive, head, devices and message of each node; empty when there is an error.
  type: list
  elements: dict
  returned: success
error:
  description: Why the head did not answer, empty when it did.
  type: str
  returned: success
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.ray import ask_nodes


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "dashboard_port": {"type": "int", "required": True},
            "token_file": {"type": "path", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    try:
        token = Path(module.params["token_file"]).read_text().strip()
    except OSError as error:
        module.exit_json(changed=False, nodes=[], error=f"no Ray token: {error}")
    module.exit_json(changed=False, **ask_nodes(module.params["dashboard_port"], token))


if __name__ == "__main__":
    main()
