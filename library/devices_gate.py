#!/usr/bin/python
"""Judge what accelerators did; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: devices_gate
short_description: Judge the results and the rates of all accelerators of a cluster
description:
  - Runs on the controller, once, with what M(accelerator_probe) measured on each host. Fails for a
    wrong result, a rate far below the data sheet or below that of its peers, and for errors in the
    kernel's log that ask for more than to be watched.
author: The vllm-ansible authors
options:
  looks:
    description: Name of the variable in which every host keeps what M(accelerator_probe) returned.
    type: str
    required: true
  accept:
    description: Checks that may fail, such as C(peers), or at one place C(peers@gh-07:0).
    type: list
    elements: str
    default: []
  accelerators:
    description: Accelerators of the user's own, as the role C(site) describes them.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Judge the accelerators
  devices_gate:
    looks: __devices_probe
  register: devices_verdict
  run_once: true
"""

RETURN = r"""
rows:
  description: Each check with C(where), C(verdict), C(what), C(expected), C(found) and C(fix).
  type: list
  returned: when something was judged
evidence:
  description: Gate, summary and figures for the record.
  type: dict
  returned: when something was judged
"""
