#!/usr/bin/python
"""Look at Enflame's driver on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enflame_driver_info
short_description: Look at Enflame's driver on a host
description:
  - Reports devices on the bus, the loaded and the installed kernel module, who holds it, what a
    run began and did not end, and how many devices answer. Changes nothing, needs no root.
author: The vllm-ansible authors
options:
  root:
    description: Directory under which the host's file systems are looked at.
    type: str
    default: /
  in_use:
    description: Also look for processes that hold a device; without root, those of its own user.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Look at the driver
  enflame_driver_info:
  register: __enflame_driver_look
"""

RETURN = r"""
driver:
  description:
    - C(present) says whether the bus shows an Enflame device; the rest is there only then.
    - C(loaded) is the version in the kernel, C(installed) the one that it would load, C(holders)
      the modules on top of it, C(references) how often it is held, C(begun) what was left half
      installed.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.drivers.enflame_driver import look


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "str", "default": "/"},
            "in_use": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str]:
        tool = module.get_bin_path(argv[0])
        if tool is None:
            return 127, ""
        status, output, _ = module.run_command([tool, *argv[1:]])
        return status, output

    module.exit_json(changed=False, driver=look(run, **module.params))


if __name__ == "__main__":
    main()
