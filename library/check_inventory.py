#!/usr/bin/python
"""Refuse a bad inventory; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_inventory
short_description: Refuse a bad inventory before a machine is touched
description:
  - Checks every variable of every host as Ansible resolved it, on the controller, and reports all
    that is wrong at once.
  - Refuses names that nothing reads, wrong types, hosts that disagree, missing hosts and secrets,
    layouts larger than the declared machines, and a C(--limit) that leaves no host. Whether it
    would split an engine is for M(check_limit) to say, which knows the kept plan.
  - A play on C(localhost) alone is skipped under C(--limit); use C(hosts=localhost:gpu) with
    C(run_once).
author: The vllm-ansible authors
options:
  only:
    description:
      - What is judged. V(command_line) is what C(-e) gives alone, for verbs that look, stop and
        remove, which must work while an inventory is not complete.
    type: str
    choices: [everything, command_line]
    default: everything
"""

EXAMPLES = r"""
- name: Check the inventory before touching a machine
  hosts: localhost:gpu
  gather_facts: false
  tasks:
    - name: Check every variable of every host
      run_once: true
      check_inventory:
"""

RETURN = r"""
idle:
  description: How many accelerators no engine would use (C(idle)), of how many (C(of)).
  type: dict
  returned: success
unchecked:
  description: By engine, why it is not known yet whether it fits.
  type: dict
  returned: success
evidence:
  description: The cluster's name, its engines and hosts.
  type: dict
  returned: success
problems:
  description: Every problem as one sentence.
  type: list
  elements: str
  returned: failure
"""
