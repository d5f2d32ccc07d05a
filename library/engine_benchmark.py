#!/usr/bin/python
"""Know what was measured of the engines that a host serves, and keep what is measured."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_benchmark
short_description: Know what was measured of the engines that a host serves
description:
  - Figures hold as long as the plan of the engine, the start of its server and what is asked stay
    the same. One look that costs milliseconds says so.
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
  engines:
    description: C(name), C(served_name), C(url) and C(digest) of the plan of each engine.
    type: list
    elements: dict
    required: true
  requests:
    description: How many requests are sent to an engine.
    type: int
    required: true
  concurrency:
    description: How many of them at the same time.
    type: int
    required: true
  input_tokens:
    description: Length of each prompt.
    type: int
    required: true
  output_tokens:
    description: Length of each answer.
    type: int
    required: true
  client:
    description:
      - A load generator on a host of its own, C(host), with C(program), its vLLM, C(directory),
        what it needs, and, where it asks another address than the engine's, C(url) and
        C(certificate). Empty for this host.
    type: dict
    default: {}
  state:
    description: V(kept) takes the result of a measurement that is done, and judges it.
    type: str
    choices: [look, kept]
    default: look
  seen:
    description: What V(look) said of the one engine in O(engines) before it was measured.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Look at what was measured before
  engine_benchmark:
    cluster: demo
    cluster_dir: /opt/vllm-ansible/demo
    engines:
      - {name: chat, served_name: smollm2, url: http://10.0.0.1:8000, digest: 0123456789abcdef}
    requests: 8
    concurrency: 2
    input_tokens: 64
    output_tokens: 32
"""

RETURN = r"""
engines:
  description:
    - By name, running and why not, fresh and the reason why not, figures, fingerprint, seed, and
      argv, environment, user and result of the measuring command.
    - C(written) is where the command writes its result, which is taken from C(result); both are one
      unless O(client) is on another host. C(tokenizer) is where this host has the engine's.
    - C(cleanup) is the command that removes its container, empty where it needs none.
  type: dict
  returned: when O(state) is V(look)
stale:
  description: The engines that run and whose figures do not hold.
  type: list
  elements: str
  returned: when O(state) is V(look)
figures:
  description: What was measured.
  type: dict
  returned: when O(state) is V(kept)
"""

import os
from dataclasses import fields
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import benchmark
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks


def look(module: AnsibleModule, engines: list[benchmark.Served]) -> dict[str, Any]:
    """Look at every engine."""
    wanted = module.params
    settings = benchmark.Settings(*(wanted[one.name] for one in fields(benchmark.Settings)))
    client = benchmark.Client(**wanted["client"]) if wanted["client"] else None
    running = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    found = {
        engine.name: benchmark.look(
            wanted["cluster_dir"],
            engine,
            running.get(engine.process),
            settings.filled(engine.load),
            running.get(engine.router),
            client,
        )
        for engine in engines
    }
    stale = [name for name, one in found.items() if one["running"] and not one["fresh"]]
    return {"changed": False, "engines": found, "stale": stale}


def keep(module: AnsibleModule, engines: list[benchmark.Served]) -> dict[str, Any]:
    """Take the result of the one engine that was measured."""
    directory = module.params["cluster_dir"]
    log = os.path.join(directory, "tasks", f"benchmark-{engines[0].name}.log")
    figures = {}
    if not module.check_mode:
        figures = benchmark.keep(directory, engines[0], module.params["seen"], log)
    return {"changed": True, "figures": figures}


def main() -> None:
    """Look or keep, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "engines": {"type": "list", "elements": "dict", "required": True},
            # Counts of language model tokens, not secrets.
            "input_tokens": {"type": "int", "required": True, "no_log": False},
            "output_tokens": {"type": "int", "required": True, "no_log": False},
            "requests": {"type": "int", "required": True},
            "concurrency": {"type": "int", "required": True},
            "client": {"type": "dict", "default": {}},
            "state": {"choices": ["look", "kept"], "default": "look"},
            "seen": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    work = look if module.params["state"] == "look" else keep
    try:
        engines = [benchmark.Served(**engine) for engine in module.params["engines"]]
        result = work(module, engines)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
