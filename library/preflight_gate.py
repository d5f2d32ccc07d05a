#!/usr/bin/python
"""Judge what every host shows before an engine starts; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_gate
short_description: Judge what every host shows before an engine starts
description:
  - The gate preflight. Reads, on the controller, what M(preflight_info) registered on each host
    together with C(site_host), and fails with every check that does not hold.
  - Warnings, and failures that were accepted, are displayed, one line each.
  - Run it once.
author: The vllm-ansible authors
options:
  looks:
    description: Name of the variable in which every host keeps what M(preflight_info) returned.
    type: str
    required: true
  engines:
    description: The engines that the hosts will run, as the inventory says.
    type: list
    elements: dict
    default: []
  cuda:
    description: The CUDA release that the engine's environment is made for. Empty skips its check.
    type: str
    default: ""
  accept:
    description: Checks whose failure is accepted, as C(check) or C(check@host).
    type: list
    elements: str
    default: []
  judge:
    description: Whether a failing check fails the task. Otherwise it is only returned.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Judge that the hosts can serve
  preflight_gate:
    looks: __preflight_look
    engines: "{{ engines }}"
    accept: [host_memory@spare]
  run_once: true
"""

RETURN = r"""
evidence:
  description:
    - The gate, its summary, and as C(values.rows) each check on each host with C(check), C(host),
      C(what), C(threshold), C(found), C(verdict), C(why) and C(fix).
  type: dict
  returned: success
failing:
  description: The rows that fail, as C(missed) has them.
  type: list
  elements: dict
  returned: when O(judge) is false
missed:
  description: The rows that fail, with C(check), C(what), C(expected), C(found), C(where), C(fix).
  type: list
  elements: dict
  returned: failure
"""
