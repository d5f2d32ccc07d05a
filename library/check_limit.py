#!/usr/bin/python
"""Refuse to act on some of an engine's hosts only; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_limit
short_description: Refuse a C(--limit) that would split an engine
description:
  - An engine starts, stops and restarts as a whole. Refuses a C(--limit) that leaves in some of the
    hosts of one and leaves out others, on the controller. Run it once.
  - A run of C(site.yml) whose C(--limit) leaves no engine to serve, or needs a new plan, is refused
    as well, before its stages do anything.
author: The vllm-ansible authors
options:
  kept:
    description: The plan of the last run. When it is empty, the estimate from the inventory counts.
    type: dict
    default: {}
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  engines:
    description: The engines as the inventory lists them.
    type: list
    elements: dict
    required: true
  port_base:
    description: First of the ports that the cluster uses inside.
    type: int
    default: 20000
"""

EXAMPLES = r"""
- name: Refuse a limit that would split an engine
  run_once: true
  check_limit:
    kept: "{{ __site_lock.plan }}"
    cluster: "{{ cluster_name }}"
    engines: "{{ engines }}"
"""

RETURN = r"""
problems:
  description: Every engine that would be split, as one sentence.
  type: list
  elements: str
  returned: failure
"""
