#!/usr/bin/python
"""Write one script for the administrator; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: system_script
short_description: Write what an administrator has to do on all hosts as one script
description:
  - Reads, on the controller, what the role C(system) judged on each host, and writes
    C(administrator.sh) into the directory of the run where something needed is different and this
    run may not repair it. The script is POSIX sh, finds its host by the data-plane address and may
    be run again. Hosts are not touched.
  - Run it once.
author: The vllm-ansible authors
options:
  judged:
    description: Name of the variable in which every host has what the role C(system) judged.
    type: str
    required: true
  hosts:
    description: The facts of all hosts, name, privileges and address of each.
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    description: The script is still written, since it is on the controller.
    support: full
"""

EXAMPLES = r"""
- name: Write what an administrator has to do
  system_script:
    judged: __system_judged
    hosts: "{{ site_hosts }}"
  register: __system_script
  run_once: true
"""

RETURN = r"""
path:
  description: Where the script lies on the controller; empty if none is needed.
  type: str
  returned: success
script:
  description: Its text.
  type: str
  returned: success
"""
