#!/usr/bin/python
"""Make the small Python environment that the cluster's own tools run from."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tools_environment
short_description: Make the small Python environment that the cluster's own tools run from
description:
  - Installs a short lock, by hash, into C(tools) of the cluster's directory. It holds uv, which
    builds the engine's environment, and supervisor.
  - Uses uv where the host has it. Else C(python3 -m venv) and its pip install uv, which installs
    the rest; pip does where uv cannot.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  requirements:
    description: The text of the lock.
    type: str
    required: true
  python:
    description: The interpreter to build on.
    type: path
    default: /usr/bin/python3
  environment:
    description: Further environment of the installation, such as proxies and mirrors.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Make the cluster's tools
  tools_environment:
    cluster_dir: /opt/vllm-ansible/r1
    requirements: "{{ lookup('ansible.builtin.file', 'requirements/tools.txt') }}"
"""

RETURN = r"""
directory:
  description: Where the environment is.
  type: str
  returned: success
python:
  description: Its interpreter.
  type: str
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.environment import tools


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "requirements": {"type": "str", "required": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    place = os.path.join(wanted["cluster_dir"], "tools")
    changed = not tools.complete(place, wanted["requirements"])
    if changed and not module.check_mode:
        build(module, place, wanted)
    module.exit_json(changed=changed, directory=place, python=os.path.join(place, "bin/python"))


def build(module: AnsibleModule, place: str, wanted: dict[str, Any]) -> None:
    """Run the commands in order, then leave the mark of completion."""
    lock = tools.write_lock(place, wanted["requirements"])
    environment = tools.settings(wanted["environment"])
    steps = tools.commands(module.get_bin_path("uv"), wanted["python"], place, lock)
    while steps:
        command = steps.pop(0)
        status, output, error = module.run_command(command, environ_update=environment)
        if status == 0:
            continue
        if other := tools.instead(command, place, lock):
            steps.insert(0, other)
        else:
            module.fail_json(
                msg="the cluster's tools could not be installed",
                expected="exit status 0",
                found=tools.last_lines(error or output),
                where=place,
                command=" ".join(command),
                fix=tools.advice(error + output),
            )
    tools.mark(place, wanted["requirements"])


if __name__ == "__main__":
    main()
