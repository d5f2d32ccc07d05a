#!/usr/bin/python
"""Decide what each engine needs; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_decision
short_description: Decide which processes to stop and to start, an engine at a time
description:
  - Compares the processes a plan wants with those every host records, on the controller, once.
  - An engine that differs restarts as a whole. One that is serving is touched only when
    O(allow_disruption) is set; the refusal says what changed.
author: The vllm-ansible authors
options:
  plan:
    description: The plan, as M(plan_layout) returns it.
    type: dict
    required: true
  hosts:
    description:
      - C(site_host) of each host, as a list or by name; or the name of a variable that holds it
        on every host.
    type: raw
    required: true
  environments:
    description:
      - By host, C(directory) and C(fingerprint) of the engine's environment, or the name of such a
        variable. A host without a fingerprint has no complete environment; nothing starts there.
    type: raw
    required: true
  models:
    description:
      - By host and engine, C(path) and C(fingerprint) of the weights, or their directory alone;
        or the name of such a variable.
    type: raw
    required: true
  places:
    description:
      - By host and engine, where the weights will be; read in check mode alone, for what is not
        there yet.
    type: raw
    required: true
  looks:
    description: The answer of M(processes_info) by host, or the name of such a variable.
    type: raw
    required: true
  api_key_file:
    description: Where the engines' key lies on the controller; a new key means a restart.
    type: path
  allow_disruption:
    description: Let engines that are serving be restarted or removed.
    type: bool
    default: false
  only:
    description: The engines to decide on; the others stay as they are. All where it is left out.
    type: list
    elements: str
  forget_rungs:
    description:
      - Start each engine as planned. Without it, one that answered only after the watchdog had
        started it otherwise starts so again, while its command, packages, weights and hardware are
        the same.
    type: bool
    default: false
  stage:
    description: V(serve) refuses when a Ray cluster still has to change.
    type: str
    choices: [cluster, serve]
    default: cluster
"""

EXAMPLES = r"""
- name: Decide what each engine needs
  run_once: true
  engine_decision:
    plan: "{{ site_plan }}"
    hosts: site_host
    environments: environment_installed
    models: weights_models
    places: weights_dirs
    looks: __plan_processes
    allow_disruption: "{{ allow_disruption }}"
  register: __plan_decision

- name: Stop servers that must restart
  managed_process: "{{ item | combine(common) }}"
  loop: "{{ __plan_decision.hosts[inventory_hostname].stop_serve }}"
"""

RETURN = r"""
engines:
  description: For each engine C(action) (none, start, restart, remove), C(reasons) and C(disrupts).
  type: dict
  returned: success
hosts:
  description:
    - For each host the steps C(stop_serve), C(stop_workers), C(stop_heads), C(start_heads),
      C(start_workers), C(start_serve), to be taken in this order, all hosts together; each a list
      of processes with C(name), C(engine), C(state), and what M(managed_process) starts them with.
  type: dict
  returned: success
differs:
  description: Whether there is anything to do.
  type: bool
  returned: success
starts:
  description: Whether a server has to start.
  type: bool
  returned: success
waiting:
  description: Names of the engines beneath which a Ray cluster has to change.
  type: list
  elements: str
  returned: success
"""
