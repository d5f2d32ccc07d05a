#!/usr/bin/python
"""Refuse a plan that the installed vLLM cannot carry; the action plugin of this name does it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: known_bad_versions
short_description: Refuse a plan that the installed vLLM is known not to carry
description:
  - Compares the version with a list of reported defects that depend on the layout, and on arguments
    that go around them. Runs on the controller.
author: The vllm-ansible authors
options:
  version:
    description: The version of vLLM that is installed.
    type: str
    required: true
  engines:
    description: The engines of a plan.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Refuse what this vLLM is known not to carry
  known_bad_versions:
    version: 0.32.0
    engines: "{{ plan_made.engines }}"
  run_once: true
"""

RETURN = r"""
problems:
  description: What would happen to which engine.
  type: list
  elements: str
  returned: failure
"""
