#!/usr/bin/python
"""Resolve the facts of all hosts; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_facts
short_description: Resolve what an inventory leaves to be found out about its hosts
description:
  - Decides supervisor, privileges, directories and the data-plane address of every host of the
    group C(gpu), on the controller, from one look at each. Run it once.
  - Refuses unsupported systems, two hosts with one address, and a choice between several networks.
author: The vllm-ansible authors
options:
  looks:
    description:
      - The answer of M(host_info) for each host, by name; or the name of a variable that holds it
        on every host.
    type: raw
    required: true
  besides:
    description: By name, the answer of M(host_info) for hosts that C(--limit) leaves out.
    type: dict
    default: {}
  driver_follows:
    description:
      - Whether the play is still to judge the drivers. Enflame devices that are on the bus and do
        not answer are then left to that, unless the mode of that role is V(skip).
    type: bool
    default: false
  accelerators_judged:
    description:
      - Whether silent or missing accelerators are refused. Verbs that start nothing, such as stop
        and status, are needed most on a host that has one.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Resolve the facts of all hosts
  run_once: true
  site_facts:
    looks: __site_look
  register: __site_facts
"""

RETURN = r"""
hosts:
  description: C(site_host) of every host, by name.
  type: dict
  returned: success
"""
