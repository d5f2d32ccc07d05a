#!/usr/bin/python
"""Judge what hosts measured of each other; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_gate
short_description: Prove that every host reaches every other on every planned port
description:
  - Reads, on the controller, what the role C(reach) registered on each host. Fails where a port is
    blocked or taken, where small datagrams are lost, or where a clock is off by more than a
    second, and names the host, the pair or the ports at fault.
  - Warns of clocks that are off by more than 0.1 s, of round trips far above the usual one, and
    where loss could not be measured.
  - Run it once. With a single host there is nothing to reach, and it says so.
author: The vllm-ansible authors
options:
  engines:
    description: The list of engines, as in the inventory. It says what each port is for.
    type: list
    elements: dict
    required: true
  port_base:
    description: The first internal port of the cluster.
    type: int
    required: true
  accept:
    description: Checks that may fail, as C(check), or C(check@where) for one place alone.
    type: list
    elements: str
    default: []
  kept:
    description: The plan of the last run, whose engines keep their ports.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Judge that the hosts reach each other
  reach_gate:
    engines: "{{ engines }}"
    port_base: "{{ port_base }}"
  run_once: true
"""

RETURN = r"""
evidence:
  description:
    - Pairs, connections and ports that were tried, the round trip in microseconds by pair, its
      median and its worst, each host's clock offset with its uncertainty in seconds, loss by
      direction in percent, and what was C(noted), a warning or accepted.
  type: dict
  returned: success
rows:
  description:
    - C(check) (reach_strangers, reach_ports, reach_key, reach_loss, reach_clocks, reach_round_trip,
      reach_route), C(where), C(verdict) (pass, warn, fail, accepted), C(what), C(expected),
      C(found) and C(fix); one for each check that passes, and one for each thing that is wrong.
  type: list
  elements: dict
  returned: always
missed:
  description: Those rows that fail.
  type: list
  elements: dict
  returned: failure
values:
  description: The figures of C(evidence), also when the gate fails.
  type: dict
  returned: failure
"""
