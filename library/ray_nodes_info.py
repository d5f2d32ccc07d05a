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
  wait_seconds:
    description: Look on for so long, until there is another number of nodes than O(known_nodes).
    type: float
    default: 0
  known_nodes:
    description: How many nodes the last look has found.
    type: int
    default: 0
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

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.ray import ask_nodes

# Ray tells nobody that a node has joined: it has to be asked.
LOOK_SECONDS = 0.5


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "dashboard_port": {"type": "int", "required": True},
            "token_file": {"type": "path", "required": True, "no_log": False},
            "wait_seconds": {"type": "float", "default": 0},
            "known_nodes": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    until = time.monotonic() + module.params["wait_seconds"]
    while True:
        answer: dict[str, Any] = ask(module.params["dashboard_port"], module.params["token_file"])
        left = until - time.monotonic()
        if len(answer["nodes"]) != module.params["known_nodes"] or left <= 0:
            module.exit_json(changed=False, **answer)
        time.sleep(min(LOOK_SECONDS, left))


def ask(port: int, token_file: str) -> dict[str, Any]:
    """Return nodes and error, also where there is no token yet."""
    try:
        token = Path(token_file).read_text().strip()
    except OSError as error:
        return {"nodes": [], "error": f"no Ray token: {error}"}
    found: dict[str, Any] = ask_nodes(port, token)
    return found


if __name__ == "__main__":
    main()
