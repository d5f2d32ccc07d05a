#!/usr/bin/python
"""Look at NVIDIA's driver on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_info
short_description: Look at NVIDIA's driver on a host
description:
  - Reports devices and switches on the bus, the loaded kernel module, the library that programs
    load, packages with their state and holds, services, repositories, RDMA devices and what lets
    them reach device memory. Changes nothing, needs no root and no driver.
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
  nvidia_driver_info:
  register: __nvidia_driver_look
"""

RETURN = r"""
driver:
  description:
    - C(present) says whether the bus shows an NVIDIA device; the rest is there only then.
    - C(devices) are those on the bus, C(withheld) how many of them this container was not given.
    - C(module) has C(loaded), C(flavour), C(built), C(headers) and C(nouveau); C(library) C(path)
      and C(version); C(packages) C(name), C(version) and C(held); C(services) C(exists), C(active)
      and C(enabled) for each.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.drivers.look import look


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
