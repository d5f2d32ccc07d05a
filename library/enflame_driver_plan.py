#!/usr/bin/python
"""Decide what is done about a host's Enflame driver; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enflame_driver_plan
short_description: Decide what is done about a host's Enflame driver
description:
  - Compares what M(enflame_driver_info) saw with what a site wants, on the controller. Refuses,
    before anything is touched, what must not be done to that host.
author: The vllm-ansible authors
options:
  host:
    description: Facts of the host, as role C(site) keeps them.
    type: dict
    required: true
  look:
    description: What M(enflame_driver_info) returned as C(driver).
    type: dict
    required: true
  mode:
    description: Whether differences will be repaired.
    type: str
    choices: [manage, check]
    required: true
  version:
    description: The version that the driver must have at least; empty takes any.
    type: str
    default: ""
  file:
    description: The vendor's installer on the controller.
    type: str
    default: ""
  sha256:
    description: SHA-256 of that file.
    type: str
    default: ""
  arguments:
    description: What the installer is started with; empty follows from the file's name.
    type: list
    elements: str
    default: []
  peer_memory:
    description: Whether network cards must reach device memory where there are RDMA devices.
    type: bool
    default: true
  devices:
    description: How many devices must answer; 0 is all that the bus shows.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Decide what is done about the driver
  enflame_driver_plan:
    host: "{{ site_host }}"
    look: "{{ __enflame_driver_look.driver }}"
    mode: check
  register: __enflame_driver_plan
"""

RETURN = r"""
differences:
  description: What is not as it must be, by identifiers.
  type: list
  elements: str
  returned: success
steps:
  description: C(unload) and C(load), modules in order, C(install), and C(now) if there is any.
  type: dict
  returned: success
measurements:
  description: The differences as M(gate) takes them.
  type: list
  elements: dict
  returned: success
unmended:
  description: Those of them that only a person can do something about.
  type: list
  elements: dict
  returned: success
summary:
  description: One line about a host whose driver is as it must be.
  type: str
  returned: success
values:
  description: The figures behind it.
  type: dict
  returned: success
commands:
  description: What a person would type.
  type: list
  elements: str
  returned: success
arguments:
  description: What the installer is started with.
  type: list
  elements: str
  returned: success
version:
  description: The version that the installer must bring.
  type: str
  returned: success
"""
