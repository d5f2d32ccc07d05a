#!/usr/bin/python
"""Say which machines are given back by name; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replaced_machines
short_description: Say which rented machines are terminated because their hosts were named
description:
  - Reads the inventory alone. Refuses names without a machine, all machines at once, and hosts that
    are not rented.
author: The vllm-ansible authors
options:
  hosts:
    description: Names of hosts.
    type: list
    elements: str
    default: []
  provider:
    description: Who gives machines to this cluster.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: See which machines are given back
  replaced_machines:
    hosts: [r1-3]
    provider: lambda
  run_once: true
"""

RETURN = r"""
verdicts:
  description: For each host, C(id) of its machine, C(accepted), which is false, and C(reason).
  type: dict
  returned: success
"""
