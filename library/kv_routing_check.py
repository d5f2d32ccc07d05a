#!/usr/bin/python
"""Ask one prompt repeatedly through Dynamo and count where its cache was hit."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kv_routing_check
short_description: Ask one prompt repeatedly through Dynamo and count where its cache was hit
description:
  - Waits until Dynamo knows every engine, sends a prompt that was never sent before, waits for the
    KV events that Dynamo applies to its index, and asks the same beginning six times more.
  - Reads the hits of the prefix cache from each engine's own counters. Reports what it found
    instead of failing, so that a gate can judge it.
  - With O(ask=false) it asks no engine, and reports which engines Dynamo knows.
author: The vllm-ansible authors
options:
  ask:
    description: Whether the prompt is asked. Without it O(front) and O(servers) suffice.
    type: bool
    default: true
  url:
    description: Base address by which clients ask, without C(/v1). Needed with O(ask).
    type: str
  front:
    description: Base address of Dynamo's frontend.
    type: str
    required: true
  servers:
    description: Base address of each engine, whose C(/metrics) are read.
    type: list
    elements: str
    required: true
  api_key_file:
    description: File on this host that holds the key. Needed with O(ask).
    type: path
  model:
    description: Name under which the model is served. Needed with O(ask).
    type: str
  wait_seconds:
    description: Longest wait for the engines, and for the events of the first prompt.
    type: float
    default: 60
  timeout_seconds:
    description: Longest wait for one answer.
    type: float
    default: 120
"""

EXAMPLES = r"""
- name: See that repeats go to the engine that has them in its cache
  kv_routing_check:
    url: http://10.0.0.5:8000
    front: http://127.0.0.1:20003
    servers: ["http://127.0.0.1:20020", "http://127.0.0.1:20021"]
    api_key_file: /opt/vllm-ansible/r1/secrets/api_key
    model: r1

- name: See which engines Dynamo knows
  kv_routing_check:
    ask: false
    front: http://127.0.0.1:20003
    servers: ["http://127.0.0.1:20020", "http://127.0.0.1:20021"]
    wait_seconds: 0
"""

RETURN = r"""
reason:
  description: Why a question was not answered, empty when all were.
  type: str
  returned: success
workers:
  description: How many engines Dynamo sends requests to.
  type: int
  returned: when every question was answered, or none was asked
block_size:
  description: Tokens of one block of the engines' caches.
  type: int
  returned: when every question was answered
prompt_tokens:
  description: Tokens of the prompt.
  type: int
  returned: when every question was answered
events:
  description: How many stored events Dynamo applied after the first question, or ever where none
    was asked.
  type: int
  returned: when every question was answered, or none was asked
repeats:
  description: For each repeat, the tokens that were hit in the cache of each engine.
  type: list
  returned: when every question was answered
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import kv_routing
from ansible.module_utils.vllm_ansible.node.engine.completion import Unanswered


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "ask": {"type": "bool", "default": True},
            "url": {"type": "str"},
            "front": {"type": "str", "required": True},
            "servers": {"type": "list", "elements": "str", "required": True},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str"},
            "wait_seconds": {"type": "float", "default": 60},
            "timeout_seconds": {"type": "float", "default": 120},
        },
        required_if=[("ask", True, ("url", "api_key_file", "model"))],
        supports_check_mode=True,
    )
    wanted = module.params
    if not wanted["ask"]:
        known = kv_routing.state(wanted["front"], len(wanted["servers"]), wanted["wait_seconds"])
        module.exit_json(changed=False, reason="", **known)
    try:
        with open(wanted["api_key_file"], encoding="utf-8") as file:
            key = file.read().strip()
        found = kv_routing.look(
            wanted["url"],
            wanted["front"],
            wanted["servers"],
            key,
            wanted["model"],
            wanted["wait_seconds"],
            wanted["timeout_seconds"],
        )
    except (OSError, Unanswered) as error:
        module.exit_json(changed=False, reason=str(error))
    module.exit_json(changed=False, reason="", **found)


if __name__ == "__main__":
    main()
