#!/usr/bin/python
"""Read what the watchdog of a host has found."""

from __future__ import annotations

DOCUMENTATION = r"""
module: watchdog_info
short_description: Read what the watchdog of a host has found
description:
  - Reads the state file of the watchdog as the user that has written it. Changes nothing.
  - The watch for notices of the provider keeps its state in the same way, in its own directory.
author: The vllm-ansible authors
options:
  state_dir:
    description: The directory in which the watchdog keeps its state.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Read what the watchdog has found
  watchdog_info:
    state_dir: /run/vllm-r1/watchdog
  register: __status_watchdog
"""

RETURN = r"""
state:
  description: The state file; empty where there is none. Each finding has C(for_seconds) besides.
  type: dict
  returned: success
age:
  description: Seconds since the last look of the watchdog; 0 where there was none.
  type: float
  returned: success
error:
  description: Why the state cannot be read; empty where it can be.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.watchdog_state import kept


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={"state_dir": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **kept(module.params["state_dir"]))


if __name__ == "__main__":
    main()
