#!/usr/bin/python
"""Compute an engine's numbers by another program, to compare them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_reference
short_description: Compute what a model computes for fixed prompts, by transformers on the processor
description:
  - Starts, detached and with a low priority, one computation for each digest of weights. One
    that runs or is done is not started again.
  - Where O(wait_seconds) is given, waits for it and returns the log probabilities.
  - With O(state=stopped), stops every computation that runs on this host.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
  state:
    description: Whether the references are computed, or none is.
    type: str
    choices: [present, stopped]
    default: present
  references:
    description:
      - Of each engine C(engine), C(weights), C(place) and C(skipped), as the filter
        C(computation_references) gives them. Required with O(state=present).
    type: list
    elements: dict
  python:
    description: The Python of the engine's environment; without it all are skipped.
    type: path
    default: ""
  script:
    description: The program that it runs. Required with O(state=present).
    type: str
  user:
    description: User to run as, which needs root.
    type: str
  wait_seconds:
    description: Wait so long for the numbers. Without it, only start.
    type: float
    default: 0
attributes:
  check_mode:
    description: Nothing is started or stopped.
    support: full
"""

EXAMPLES = r"""
- name: Compute what the model computes
  engine_reference:
    cluster_dir: /opt/vllm-ansible/demo
    references: [{engine: chat, weights: 0123456789ab, place: /models/chat, skipped: ""}]
    python: /opt/vllm-ansible/demo/environments/0123456789ab/bin/python
    script: "{{ lookup('ansible.builtin.file', 'reference_numbers.py') }}"

- name: Stop what is still computed
  engine_reference:
    cluster_dir: /opt/vllm-ansible/demo
    state: stopped
"""

RETURN = r"""
references:
  description:
    - Of each engine the digest of its C(weights), and C(prompts) or why it was C(skipped).
  type: dict
  returned: with O(state=present)
stopped:
  description: The names of the tasks that were stopped.
  type: list
  elements: str
  returned: with O(state=stopped)
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import reference
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError


def answer(
    one: dict[str, Any], wanted: dict[str, Any], check: bool, until: float | None = None
) -> dict[str, Any]:
    """Start the computation for one engine, or return what is known of it by then."""
    tasks = os.path.join(wanted["cluster_dir"], "tasks")
    seconds, python = wanted["wait_seconds"], wanted["python"]
    skipped = one["skipped"] or reference.unfit_python(python)
    if skipped or check:
        return {"weights": one["weights"], "skipped": skipped or "check mode"}
    if until is None:
        reference.start(tasks, one, python, wanted["script"], wanted["user"], retry=not seconds)
        return {"weights": one["weights"]}
    left = max(0.0, until - time.monotonic())
    return {"weights": one["weights"], **reference.found(tasks, one["weights"], left, seconds)}


def main() -> None:
    """Look, start, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "state": {"choices": ["present", "stopped"], "default": "present"},
            "references": {"type": "list", "elements": "dict"},
            "python": {"type": "path", "default": ""},
            "script": {"type": "str"},
            "user": {"type": "str"},
            "wait_seconds": {"type": "float", "default": 0},
        },
        required_if=[("state", "present", ("references", "script"))],
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        if wanted["state"] == "stopped":
            tasks = os.path.join(wanted["cluster_dir"], "tasks")
            stopped = reference.stop(tasks, module.check_mode)
            module.exit_json(changed=bool(stopped), stopped=stopped)
        # All of them first, so that they share one wait.
        asked = wanted["references"]
        found = {one["engine"]: answer(one, wanted, module.check_mode) for one in asked}
        if wanted["wait_seconds"]:
            until = time.monotonic() + wanted["wait_seconds"]
            found = {one["engine"]: answer(one, wanted, module.check_mode, until) for one in asked}
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, references=found)


if __name__ == "__main__":
    main()
