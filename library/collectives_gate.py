#!/usr/bin/python
"""Judge the links between ranks; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collectives_gate
short_description: Judge the bandwidth between ranks, and name what is slow
description:
  - Runs on the controller, once, with what the task of M(collective_check) found. Fails when a
    result is wrong, when a host, card, pair or side is slow beside the others, when the whole is
    below what these machines should give or gave before, or when NCCL uses another transport than
    this machine type has.
  - With O(again), a rate that is too low is no failure yet. RV(again) says that it is to be
    measured once more.
author: The vllm-ansible authors
options:
  found:
    description: The result of the task of M(collective_check); empty where nothing was measured.
    type: dict
    required: true
  backend:
    description: The library that was measured; V(none) where none is known.
    type: str
    required: true
  kept:
    description: The figures of the last accepted run, to compare with where none are published.
    type: dict
    default: {}
  again:
    description: Whether the links are measured once more before a low rate fails.
    type: bool
    default: false
  before:
    description:
      - What the task found in the first of two measurements. Where it was too low, both figures
        are reported; where the second one passes, that is a warning.
    type: dict
    default: {}
  accept:
    description: Checks that may fail, C(links), C(bandwidth), or at one place C(links@gh-07).
    type: list
    elements: str
    default: []
  accelerators:
    description: Accelerators of the user's own, as the role C(site) describes them.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Judge what links rank and rank
  collectives_gate:
    found: "{{ __collectives_measured.result }}"
    backend: nccl
  register: collectives_verdict
  run_once: true
"""

RETURN = r"""
rows:
  description: Each check with C(where), C(verdict), C(what), C(expected), C(found) and C(fix).
  type: list
  returned: when something was judged
links:
  description: The figures that were judged.
  type: dict
  returned: when something was judged
again:
  description: Whether rates are all that is too low, and O(again) asks for a second measurement.
  type: bool
  returned: when something was judged
slow:
  description: What was found too low.
  type: str
  returned: when RV(again) is true
evidence:
  description: Gate, summary and figures for the record.
  type: dict
  returned: always, unless RV(again) is true
"""
