#!/usr/bin/python
"""Bring Enflame's driver into a host's kernel."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enflame_driver_install
short_description: Bring Enflame's driver into a host's kernel
description:
  - Proves the installer by its checksum, unloads what M(enflame_driver_plan) says, runs the
    installer, proves the version that it brought and loads modules. Each failing step is reported.
  - Nothing is forced. An installation that did not end leaves a mark, which M(enflame_driver_info)
    reports.
author: The vllm-ansible authors
options:
  unload:
    description: Modules to unload, in order.
    type: list
    elements: str
    default: []
  file:
    description: The vendor's installer on the host; empty installs nothing.
    type: str
    default: ""
  sha256:
    description: SHA-256 of that file.
    type: str
    default: ""
  version:
    description: The version that it must bring.
    type: str
    default: ""
  arguments:
    description: What the installer is started with.
    type: list
    elements: str
    default: []
  load:
    description: Modules to load, in order.
    type: list
    elements: str
    default: []
  root:
    description: Directory under which the host's file systems are looked at.
    type: str
    default: /
"""

EXAMPLES = r"""
- name: Install the driver
  enflame_driver_install:
    unload: [enflame_peer_mem, enflame]
    file: /var/lib/vllm-ansible/TopsPlatform_1.2.3_deb_amd64.run
    sha256: "{{ enflame_driver_sha256 }}"
    version: 1.2.3.14
    arguments: [--no-auto-load, --peermem, -y]
    load: [enflame, enflame_peer_mem]
"""

RETURN = r"""
commands:
  description: What was run, or would be in check mode.
  type: list
  elements: list
  returned: always
"""

import platform

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.drivers.enflame_install import (
    InstallError,
    bring,
    prove,
    steps,
)


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "unload": {"type": "list", "elements": "str", "default": []},
            "file": {"type": "str", "default": ""},
            "sha256": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "arguments": {"type": "list", "elements": "str", "default": []},
            "load": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "str", "default": "/"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    commands = steps(wanted)

    def run(argv: list[str]) -> tuple[int, str, str]:
        tool = module.get_bin_path(argv[0], required=True)
        found: tuple[int, str, str] = module.run_command([tool, *argv[1:]])
        return found

    try:
        if not module.check_mode:
            bring(wanted, run, platform.release(), wanted["root"])
        elif wanted["file"]:
            prove(wanted["file"], wanted["sha256"])
    except InstallError as error:
        module.fail_json(msg=str(error), commands=commands, **error.told)
    module.exit_json(changed=bool(commands), commands=commands)


if __name__ == "__main__":
    main()
