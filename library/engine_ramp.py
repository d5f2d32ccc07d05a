#!/usr/bin/python
"""Know which point of an engine's ramp is next, and keep what was measured."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_ramp
short_description: Know which point of an engine's ramp is next
description:
  - A ramp measures an engine with more and more users until more of them bring nothing. Its
    points are kept on the host with what they hold for; those that are missing are measured.
  - The measurement is C(vllm bench serve) of the environment the server runs from; start it with
    M(background_command), wait with M(background_wait), then take its result with V(kept).
author: The vllm-ansible authors
options:
  cluster:
    description: The cluster. Units of systemd carry its name.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on the host.
    type: path
    required: true
  engine:
    description:
      - C(name), C(served_name), C(url) and C(digest) of the plan of the engine, C(load) that its
        planned rate is for, C(metrics), the addresses of its servers.
    type: dict
    required: true
  steps:
    description: Numbers of users. Without them the ramp doubles from one.
    type: list
    elements: int
    default: []
  most:
    description: The most users where the ramp doubles.
    type: int
    default: 1024
  rounds:
    description: How often each step is measured.
    type: int
    default: 3
  requests_each:
    description: How many requests a step sends for each user.
    type: int
    default: 4
  least_requests:
    description: How many requests a step sends at least.
    type: int
    default: 16
  input_tokens:
    description: Length of each prompt. 0 is that of C(load), else 64.
    type: int
    default: 0
  output_tokens:
    description: Length of each answer. 0 is that of C(load), else 32.
    type: int
    default: 0
  slo:
    description:
      - Limits of a good request in milliseconds, C(ttft_ms), C(tpot_ms) and C(e2e_ms). 0 is none.
    type: dict
    default: {}
  again:
    description: Forget the points that are kept.
    type: bool
    default: false
  state:
    description: V(kept) takes the result of the point that was measured.
    type: str
    choices: [look, kept]
    default: look
  seen:
    description: What this module returned before the point was measured.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Look at what was measured before
  engine_ramp:
    cluster: demo
    cluster_dir: /opt/vllm-ansible/demo
    engine: {name: chat, served_name: smollm2, url: http://10.0.0.1:8000, digest: 0123456789abcdef}
    slo: {ttft_ms: 500}
"""

RETURN = r"""
running:
  description: Whether the engine's server runs. C(why) says why it does not.
  type: bool
  returned: always
document:
  description: The engine, what its points hold for, and all points with their figures.
  type: dict
  returned: when the server runs
next:
  description:
    - The point that is to be measured next with C(argv), C(environment), C(user), C(cleanup) and
      C(result) of the measuring command. Empty when all are measured.
  type: dict
  returned: when the server runs
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import ramp
from ansible.module_utils.vllm_ansible.node.engine.benchmark import Served, Settings
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks


def look(module: AnsibleModule, engine: Served) -> dict[str, Any]:
    """Look at the engine and at its points."""
    wanted = module.params
    filled = Settings(0, 0, wanted["input_tokens"], wanted["output_tokens"]).filled(engine.load)
    asked = ramp.Ramp(
        steps=tuple(wanted["steps"]),
        most=wanted["most"],
        rounds=wanted["rounds"],
        requests_each=wanted["requests_each"],
        least_requests=wanted["least_requests"],
        input_tokens=filled.input_tokens,
        output_tokens=filled.output_tokens,
        slo={name: float(wanted["slo"].get(name) or 0) for name in ramp.LIMITS},
        also=int(engine.load.get("concurrency", 0)),
    )
    ramp.check(asked, engine.name)
    running = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    found, router = running.get(engine.process), running.get(engine.router)
    known = ramp.look(wanted["cluster_dir"], engine, found, asked, router, wanted["again"])
    return {"changed": False, **known}


def keep(module: AnsibleModule, engine: Served) -> dict[str, Any]:
    """Take the result of the point that was measured."""
    directory, seen = module.params["cluster_dir"], module.params["seen"]
    if module.check_mode:
        return {"changed": True, **seen}
    log = os.path.join(directory, "tasks", f"ramp-{engine.name}.log")
    document = ramp.keep(directory, engine, seen["document"], seen["next"], log)
    after = ramp.following(directory, engine, document)
    return {"changed": True, "running": True, "document": document, "next": after}


def main() -> None:
    """Look or keep, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "engine": {"type": "dict", "required": True},
            "steps": {"type": "list", "elements": "int", "default": []},
            "most": {"type": "int", "default": 1024},
            "rounds": {"type": "int", "default": 3},
            "requests_each": {"type": "int", "default": 4},
            "least_requests": {"type": "int", "default": 16},
            # Counts of language model tokens, not secrets.
            "input_tokens": {"type": "int", "default": 0, "no_log": False},
            "output_tokens": {"type": "int", "default": 0, "no_log": False},
            "slo": {"type": "dict", "default": {}},
            "again": {"type": "bool", "default": False},
            "state": {"choices": ["look", "kept"], "default": "look"},
            "seen": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    work = look if module.params["state"] == "look" else keep
    try:
        result = work(module, Served(**module.params["engine"]))
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
