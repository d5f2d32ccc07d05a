#!/usr/bin/python
"""Ask new prompts of prefill and decode engines and count what was moved."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kv_transfer_check
short_description: Ask new prompts of prefill and decode engines and count what was moved
description:
  - For each pair asks the prefill engine a prompt that was never asked, then the decode engine the
    same with what the first has answered for it, and reads the decode engine's own counters.
  - Asks another prompt as a client does, by way of the router.
  - Reports what it found instead of failing, so that a gate can judge it.
author: The vllm-ansible authors
options:
  url:
    description: Base address by which clients ask, without C(/v1).
    type: str
    required: true
  prefill:
    description: Name and base address of each prefill engine.
    type: list
    elements: dict
    required: true
    suboptions:
      engine: {type: str, required: true, description: Its name.}
      url: {type: str, required: true, description: Its base address.}
  decode:
    description: Name and base address of each decode engine.
    type: list
    elements: dict
    required: true
    suboptions:
      engine: {type: str, required: true, description: Its name.}
      url: {type: str, required: true, description: Its base address.}
  api_key_file:
    description: File on this host that holds the key.
    type: path
    required: true
  model:
    description: Name under which the model is served.
    type: str
    required: true
  sized:
    description:
      - Whether decode engines count the bytes that were moved. vLLM's Rust front end counts none.
    type: bool
    default: true
  wait_seconds:
    description: Longest wait until counters show what was answered.
    type: float
    default: 60
  timeout_seconds:
    description: Longest wait for one answer.
    type: float
    default: 120
"""

EXAMPLES = r"""
- name: See that decode engines fetch what prefill engines have computed
  kv_transfer_check:
    url: http://10.0.0.6:8001
    prefill: [{engine: read, url: "http://10.0.0.5:20020"}]
    decode: [{engine: write, url: "http://10.0.0.6:20120"}]
    api_key_file: /opt/vllm-ansible/r1/secrets/api_key
    model: r1
"""

RETURN = r"""
reason:
  description: Why nothing was asked, empty when it was.
  type: str
  returned: success
pairs:
  description: >-
    For each pair, names as C(prefill) and C(decode); C(tokens) of the prompt, how many of them were
    C(remote), C(bytes) moved and C(failed) transfers, or the C(reason) why there was no answer.
  type: list
  returned: when something was asked
front:
  description: The same of the prompt that was asked by way of the router.
  type: dict
  returned: when something was asked
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import kv_transfer


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "prefill": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "engine": {"type": "str", "required": True},
                    "url": {"type": "str", "required": True},
                },
            },
            "decode": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "engine": {"type": "str", "required": True},
                    "url": {"type": "str", "required": True},
                },
            },
            "api_key_file": {"type": "path", "required": True, "no_log": False},
            "model": {"type": "str", "required": True},
            "sized": {"type": "bool", "default": True},
            "wait_seconds": {"type": "float", "default": 60},
            "timeout_seconds": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        with open(wanted["api_key_file"], encoding="utf-8") as file:
            key = file.read().strip()
    except OSError as error:
        module.exit_json(changed=False, reason=str(error))
    found = kv_transfer.look(
        wanted["url"],
        wanted["prefill"],
        wanted["decode"],
        key,
        wanted["model"],
        wanted["wait_seconds"],
        wanted["timeout_seconds"],
        wanted["sized"],
    )
    module.exit_json(changed=False, reason="", **found)


if __name__ == "__main__":
    main()
