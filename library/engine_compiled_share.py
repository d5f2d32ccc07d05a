#!/usr/bin/python
"""Bring what an engine has compiled from host to host; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_compiled_share
short_description: Bring what an engine has compiled from host to host
description:
  - Keeps on the controller what the first host of an engine compiled, by the cluster, the engine's
    environment and arguments, its layout, the accelerator and the architecture; and gives it to
    hosts that have compiled nothing yet.
author: The vllm-ansible authors
options:
  state:
    description: V(kept) brings it to the controller, V(taken) to this host.
    type: str
    choices: [taken, kept]
    required: true
  engine:
    description: The engine as planned.
    type: dict
    required: true
  host:
    description: C(site_host).
    type: dict
    required: true
  cluster:
    description: The cluster; another one takes nothing of it.
    type: str
    required: true
  remote_code:
    description: Whether engines that run code of their model's own take part.
    type: bool
    default: false
  fingerprint:
    description: Of the environment that the engine runs in.
    type: str
    required: true
  kept_dir:
    description: Directory on the controller.
    type: path
    required: true
  limit_bytes:
    description: More than that is not kept.
    type: int
    default: 2147483648
attributes:
  check_mode:
    description: Says what would be taken; nothing is kept.
    support: full
"""

EXAMPLES = r"""
- name: Take what another host has compiled
  engine_compiled_share:
    state: taken
    engine: "{{ site_plan.engines[0] }}"
    host: "{{ site_host }}"
    cluster: r1
    fingerprint: "{{ environment_installed.fingerprint }}"
    kept_dir: ~/.cache/vllm-ansible/compiled
"""

RETURN = r"""
key:
  description: By which it is kept.
  type: str
  returned: success
files:
  description: Files that the controller keeps.
  type: int
  returned: success
"""
