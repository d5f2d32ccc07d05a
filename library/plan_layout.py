#!/usr/bin/python
"""Plan the engines over the hosts; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_layout
short_description: Plan hosts, ranks and ports of every engine
description:
  - Computes the plan on the controller. An engine that is asked for as before stays where the kept
    plan put it. With C(--limit), the kept plan is used as it is. Run it once.
  - Writes C(plan.json) into the run's directory; keeping it on the head is the role's.
author: The vllm-ansible authors
options:
  kept:
    description: The plan of the last run, empty when there is none.
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
  accelerators:
    description:
      - Accelerators that the inventory adds, by name; each has the fields of a known one, or
        C(like) one.
    type: dict
    default: {}
  measured_bandwidth:
    description:
      - GB/s of bus bandwidth that an all-reduce over all hosts was seen to have; 0 where nothing
        was measured, and hosts are taken to have the usual cards.
    type: float
    default: 0
  early:
    description:
      - Whether more will be known later. Refuses what cannot run, and returns no plan; without it
        an engine of C(layout=auto) that nothing could be planned for is refused, too.
    type: bool
    default: false
  allow_unfit:
    description: Whether layouts of which the planner expects that they cannot run are planned.
    type: bool
    default: false
  fill:
    description:
      - Whether an entry of which engines serve gets further ones on devices that are idle. Without
        it a warning names what would fit.
    type: bool
    default: false
  port_base:
    description: First of the ports that the cluster uses inside.
    type: int
    default: 20000
  hosts:
    description:
      - C(site_host) of each host, as a list or by name; or the name of a variable that holds it
        on every host.
    type: raw
    required: true
  configs:
    description:
      - Name of the variable in which hosts have what M(model_config_info) returned there. A host
        without it has read none.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Compute the layout
  run_once: true
  plan_layout:
    cluster: "{{ cluster_name }}"
    engines: "{{ engines }}"
    kept: "{{ site_plan | default({}) }}"
  register: __plan_layout
"""

RETURN = r"""
plan:
  description: The plan, as plan.json holds it.
  type: dict
  returned: success
differs:
  description: Whether it differs from the kept plan.
  type: bool
  returned: success
evidence:
  description: One line for people, and the layout of each engine with its reasons.
  type: dict
  returned: success
"""
