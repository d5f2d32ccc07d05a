#!/usr/bin/python
"""Say whether a rented machine is fit to serve; the action plugin of this name does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: accept_machine
short_description: Say whether a rented machine is fit to serve
description:
  - Waits until it answers, counts its accelerators and measures each of them.
  - A machine that was rented before, not by this controller's C(state/), is not measured, nor one
    that carries the mark of an earlier look or runs processes of the cluster.
  - Never fails for a machine that is not fit; C(accepted) says so, for it is ended and replaced.
author: The vllm-ansible authors
options:
  accelerators:
    description: Accelerators of the inventory's own, as the planner takes them.
    type: dict
    default: {}
  seconds:
    description: How long to measure each accelerator.
    type: float
    default: 5
  bytes:
    description: How much memory of each accelerator to test.
    type: int
    default: 1073741824
  patience_seconds:
    description: How long to wait for an answer.
    type: float
    default: 600
  cluster_dirs:
    description: Where the cluster may lie on the machine; what runs from there is not disturbed.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: See whether the machine is fit
  accept_machine:
  register: accepted
"""

RETURN = r"""
accepted:
  description: Whether it is fit to serve.
  type: bool
  returned: not in check mode
reason:
  description: Why it is not.
  type: str
  returned: not in check mode
"""
