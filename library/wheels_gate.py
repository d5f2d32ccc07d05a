#!/usr/bin/python
"""Compare the wheels over all hosts; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheels_gate
short_description: Prove that every host has the wheels it needs, and the same ones
description:
  - Reads, on the controller, what the role C(wheels) registered on each host.
  - Run it once.
author: The vllm-ansible authors
options:
  shares:
    description: What M(wheel_shares) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check that every host has its wheels
  wheels_gate:
    shares: "{{ __wheels_shares }}"
  run_once: true
"""

RETURN = r"""
evidence:
  description: Each wheel with its version, digest, and where it came from.
  type: dict
  returned: success
"""
