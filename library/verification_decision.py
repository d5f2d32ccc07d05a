#!/usr/bin/python
"""Decide whether links are measured; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verification_decision
short_description: Decide whether the links of a cluster are measured now
description:
  - Runs on the controller. Links are measured when there is a reason to and no engine of this
    cluster runs on any of its hosts, for a measurement takes all that a link carries.
author: The vllm-ansible authors
options:
  looks:
    description:
      - Name of the variable in which every host keeps what M(processes_info) returned. Empty where
        there is no reason to measure.
    type: str
    default: ""
  reason:
    description: Why links have to be measured; empty while the kept evidence holds.
    type: str
    required: true
  kept:
    description: The kept evidence, as M(cluster_lock) returns it.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Load no link that serves
  verification_decision:
    looks: __verification_processes
    reason: hosts have changed
  register: __verification_decision
  run_once: true
"""

RETURN = r"""
measures:
  description: Whether links are to be measured now.
  type: bool
  returned: success
evidence:
  description: The kept evidence, which stands where nothing is measured.
  type: dict
  returned: when nothing is to be measured
"""
