#!/usr/bin/python
"""Compare the models of each engine over its hosts; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_gate
short_description: Prove that every engine's model is whole and the same on all its hosts
description:
  - The gate of the stage weights. Reads what the role C(weights) registered on each host, on the
    controller. Run it once.
author: The vllm-ansible authors
options: {}
"""

EXAMPLES = r"""
- name: Check that every host has the same models
  weights_gate:
  run_once: true
"""

RETURN = r"""
evidence:
  description: Model, bytes, files, fingerprint and hosts of each engine.
  type: dict
  returned: success
"""
