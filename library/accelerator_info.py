#!/usr/bin/python
"""Report the accelerators of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: accelerator_info
short_description: Report the accelerators of a host
description:
  - Says what the host computes with, how many devices answer, and what the PCI bus shows
    beside them, so that a driver that does not answer is distinguished from a missing card.
author: The vllm-ansible authors
options: {}
"""

EXAMPLES = r"""
- name: Look at the accelerators
  accelerator_info:
  register: accelerators
"""

RETURN = r"""
accelerators:
  description:
    - C(kind) is V(nvidia), V(enflame) or V(cpu); C(count) is the number of devices that answer;
      C(devices) has index, name and memory_bytes where known; C(pci) lists bus addresses;
      C(withheld) is how many of those this container was not given.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.accelerators.accelerator import accelerators


def main() -> None:
    """Look and report."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, accelerators=accelerators())


if __name__ == "__main__":
    main()
