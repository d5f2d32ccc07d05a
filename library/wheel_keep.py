#!/usr/bin/python
"""Bring wheels from a host to the controller; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_keep
short_description: Bring wheels from a host to the controller, for every later run
description:
  - Reads them in pieces and keeps them with their records once their digests are right.
author: The vllm-ansible authors
options:
  cache_dir:
    description: Directory of the wheels on the controller.
    type: path
    required: true
  wheels:
    description: Records of the wheels on the host, as M(engine_wheels) returns them.
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    description: Nothing is kept.
    support: full
"""

EXAMPLES = r"""
- name: Keep what was built
  wheel_keep:
    cache_dir: ~/.cache/vllm-ansible/wheels
    wheels: "{{ built }}"
"""

RETURN = r"""
kept:
  description: The files that were brought.
  type: list
  elements: str
  returned: success
"""
