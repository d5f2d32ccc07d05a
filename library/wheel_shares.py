#!/usr/bin/python
"""Decide who builds which wheel; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheel_shares
short_description: Decide who builds a wheel, who hands it over and who takes it
description:
  - Reads, on the controller, what M(engine_wheels) saw on each host, and the wheels
    that the controller keeps, whose digests it checks. Nothing is built that exists.
  - Fetches the source of what has to be built, one commit of a git repository; not in check mode.
  - Run it once.
author: The vllm-ansible authors
options:
  cache_dir:
    description: Directory of the wheels on the controller.
    type: path
    required: true
  looks:
    description: Name of the variable in which every host has what M(engine_wheels) saw.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Decide who builds and who takes
  wheel_shares:
    cache_dir: ~/.cache/vllm-ansible/wheels
    looks: __wheels_look
  run_once: true
"""

RETURN = r"""
hosts:
  description: By host, the keys in C(builds), C(gives) and C(takes).
  type: dict
  returned: success
cached:
  description: Where each wheel lies, or will lie, on the controller, by key.
  type: dict
  returned: success
archives:
  description: The source on the controller of what has to be built, by key.
  type: dict
  returned: success
damaged:
  description: What is wrong with wheels that the controller keeps; they are built again.
  type: list
  elements: str
  returned: success
"""
