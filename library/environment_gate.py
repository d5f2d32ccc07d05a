#!/usr/bin/python
"""Compare the engine's environment over all hosts; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: environment_gate
short_description: Prove that the engine's environment is complete and equal on all hosts
description:
  - The gate of the stage install. Reads, on the controller, what the role C(environment)
    registered on each host; a fingerprint exists only where the engine was imported.
  - Run it once.
author: The vllm-ansible authors
options: {}
"""

EXAMPLES = r"""
- name: Check that every host has the same environment
  environment_gate:
  run_once: true
"""

RETURN = r"""
evidence:
  description: Versions of Python, vLLM, Ray and torch, the fingerprint and the number of hosts.
  type: dict
  returned: success
"""
