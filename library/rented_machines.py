#!/usr/bin/python
"""See that every slot has a machine; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rented_machines
short_description: See that every slot of a cluster has a rented machine that is up
description:
  - Counts what the cluster has, by its tags, before it asks for more; launches what is missing,
    waits until all are up, and replaces what was rejected, and what it launched itself and is
    unhealthy or never boots. A machine that was found fit, or that another C(state/) launched, may
    serve, and stops it instead.
  - To end them, ends what was rented from here, and fails with the names of machines of others.
  - A launch whose answer was lost is looked for in the list of instances before it is made again,
    by this run or by the next one.
  - Runs on the controller, in the turns that the provider allows. In check mode it only lists.
author: The vllm-ansible authors
options:
  state:
    description: Whether the cluster has its machines afterwards, or none.
    type: str
    choices: [present, absent]
    default: present
  part:
    description: >-
      Not the cluster's machines but the one beside it, such as V(fill), which fills the network
      volume, or V(load), which sends the load of the benchmark. V(absent) without it ends all.
    type: str
    default: ""
  holds:
    description: What the volume is to hold; where it was filled with that, nothing is rented.
    type: str
    default: ""
  rejected:
    description: Machines that were not accepted, by id, each with the reason; they are replaced.
    type: dict
    default: {}
  idle:
    description: How many accelerators no engine is to use (C(idle)), of how many (C(of)).
    type: dict
    default: {}
  silence_seconds:
    description: How long nothing may move, capacity included, before it is given up.
    type: float
    default: 3600
  boot_seconds:
    description: How long a machine may boot before it is replaced.
    type: float
    default: 1800
  ssh_seconds:
    description: How long a machine that is up may take to show its SSH key before it is replaced.
    type: float
    default: 600
"""

EXAMPLES = r"""
- name: Rent what the cluster lacks
  rented_machines:
  run_once: true
"""

RETURN = r"""
machines:
  description: The machines of the slots, with addresses and price in US cents an hour.
  type: list
  elements: dict
  returned: always
cents_per_hour:
  description: What they cost together.
  type: int
  returned: not in check mode
needed:
  description: Whether the part is needed; not where the volume holds already what it is to hold.
  type: bool
  returned: with C(part)
own_ends:
  description: >-
    When each machine that was rented from here ends itself, by id, in seconds since the epoch; null
    where nothing limits it. It is some minutes after the limits. Empty where a machine that powers
    itself off is not ended, and with privileges C(none).
  type: dict
  returned: not in check mode
"""
