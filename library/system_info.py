#!/usr/bin/python
"""Look once at what an operating system gives to serving."""

from __future__ import annotations

DOCUMENTATION = r"""
module: system_info
short_description: Look once at what an operating system gives to serving
description:
  - Reports limits, huge pages, EFA, names, clock, interfaces, RDMA devices, firewall and container
    runtime as they are. Changes nothing.
author: The vllm-ansible authors
options:
  concerns:
    description: What to look at; the rest costs nothing. The firewall is read by root only.
    type: list
    elements: str
    choices: [limits, hugepages, efa, hosts_file, time, network, firewall, container_runtime]
    required: true
  limits:
    description:
      - Limits that are wanted, open files as a number and locked memory in bytes, V(-1) for none.
        Returns whether they can be set here.
    type: dict
    default: {}
  peers:
    description: Data-plane addresses of the other hosts.
    type: list
    elements: str
    default: []
  interface:
    description: Interface of the data plane.
    type: str
    default: ''
  mark:
    description: Comment of our own rules of the firewall.
    type: str
    default: ''
  efa_cards:
    description:
      - How many EFA cards a machine must have, by its type as its firmware reports it. Where there
        are fewer, they are looked for three more times, 5 s apart.
    type: dict
    default: {}
  first_port:
    description: First port that the ranks use; from there on all must be open between hosts.
    type: int
    default: 1024
"""

EXAMPLES = r"""
- name: Look at the clock
  system_info:
    concerns: [time]
  register: __system_look
"""

RETURN = r"""
system:
  description: The state of each concern by name, and whether the host is a container.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.system.firewall import Asked
from ansible.module_utils.vllm_ansible.node.system.look import look
from ansible.module_utils.vllm_ansible.node.system.tool import Tools


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "concerns": {
                "type": "list",
                "elements": "str",
                "choices": [
                    "limits",
                    "hugepages",
                    "efa",
                    "hosts_file",
                    "time",
                    "network",
                    "firewall",
                    "container_runtime",
                ],
                "required": True,
            },
            "limits": {"type": "dict", "default": {}},
            "peers": {"type": "list", "elements": "str", "default": []},
            "interface": {"type": "str", "default": ""},
            "mark": {"type": "str", "default": ""},
            "efa_cards": {"type": "dict", "default": {}},
            "first_port": {"type": "int", "default": 1024},
        },
        supports_check_mode=True,
    )
    wanted = module.params

    def find(name: str) -> str | None:
        path: str | None = module.get_bin_path(name, opt_dirs=["/usr/sbin", "/sbin"])
        return path

    limits = {kind: int(value) for kind, value in wanted["limits"].items()}
    asked = Asked(
        peers=wanted["peers"],
        interface=wanted["interface"],
        first_port=wanted["first_port"],
        mark=wanted["mark"],
    )
    tools = Tools(find=find, run=module.run_command)
    cards = {machine: int(count) for machine, count in wanted["efa_cards"].items()}
    module.exit_json(changed=False, system=look(wanted["concerns"], tools, limits, asked, cards))


if __name__ == "__main__":
    main()
