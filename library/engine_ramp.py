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
  arrivals:
    description:
      - What the steps are. V(users) send the next request when the last is answered, V(rate) is in
        requests a second that wait for no answer.
    type: str
    choices: [users, rate]
    default: users
  steps:
    description: Numbers of users, or rates. Without them the ramp doubles from O(first).
    type: list
    elements: float
    default: []
  first:
    description: The first step where the ramp doubles.
    type: float
    default: 1
  most:
    description: The last step at most where the ramp doubles.
    type: float
    default: 1024
  seconds:
    description: For how long requests arrive at a rate.
    type: float
    default: 60
  burstiness:
    description: 1 is arrivals by chance (Poisson), less is bursts.
    type: float
    default: 1
  dataset:
    description: The form of the file that prompts come from, V(random) for prompts without one.
    type: str
    choices: [random, sharegpt, mooncake, qwen]
    default: random
  dataset_path:
    description: That file on the host.
    type: path
    default: ''
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
  client:
    description:
      - A load generator on a host of its own, C(host), with C(program), its vLLM, C(directory),
        what it needs, and, where it asks another address than the engine's, C(url) and
        C(certificate). Empty for this host.
    type: dict
    default: {}
  state:
    description:
      - V(sampled) begins to sample the engine, its host and the client before the point is
        measured. V(kept) takes the result of the point that was measured, and the samples.
    type: str
    choices: [look, sampled, kept]
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
task:
  description: The task that samples; it samples until M(background_command) stops it.
  type: str
  returned: when O(state) is V(sampled)
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
      C(written) of the measuring command, and C(result), from where it is taken, which is another
      place only where O(client) is on another host. Empty when all are measured.
  type: dict
  returned: when the server runs
"""

import functools
import hashlib
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import load_samples, ramp
from ansible.module_utils.vllm_ansible.node.engine.benchmark import Client, Served, Settings
from ansible.module_utils.vllm_ansible.node.process import background
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
        also=int(engine.load.get("concurrency", 0)) if wanted["arrivals"] == ramp.USERS else 0,
        arrivals=wanted["arrivals"],
        first=wanted["first"],
        seconds=wanted["seconds"],
        burstiness=wanted["burstiness"],
        dataset=wanted["dataset"],
        dataset_path=wanted["dataset_path"],
        dataset_digest=digest(wanted["dataset_path"]),
    )
    ramp.check(asked, engine.name)
    running = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    found, router = running.get(engine.process), running.get(engine.router)
    known = ramp.look(
        wanted["cluster_dir"], engine, found, asked, router, wanted["again"], client(module)
    )
    return {"changed": False, **known}


def client(module: AnsibleModule) -> Client | None:
    """Return the load generator that is on a host of its own, if it is."""
    return Client(**module.params["client"]) if module.params["client"] else None


def digest(path: str) -> str:
    """Return the digest of a file, empty where there is none."""
    if not os.path.isfile(path):
        return ""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            found.update(part)
    return found.hexdigest()


def sample(module: AnsibleModule, engine: Served) -> dict[str, Any]:
    """Begin to sample, before the client starts."""
    directory, following = module.params["cluster_dir"], module.params["seen"]["next"]
    watched = load_samples.Watched(**following["watched"])
    work = functools.partial(load_samples.follow, watched)
    tasks, name = os.path.join(directory, "tasks"), f"ramp-{engine.name}-samples"
    # Each point has its own seed.
    started = background.start(
        tasks, name, work, digest=str(following["seed"]), check=module.check_mode
    )
    return {"changed": started["changed"], "task": name}


def keep(module: AnsibleModule, engine: Served) -> dict[str, Any]:
    """Take the result of the point that was measured."""
    directory, seen = module.params["cluster_dir"], module.params["seen"]
    if module.check_mode:
        return {"changed": True, **seen}
    log = os.path.join(directory, "tasks", f"ramp-{engine.name}.log")
    document = ramp.keep(directory, engine, seen["document"], seen["next"], log)
    after = ramp.following(directory, engine, document, client(module))
    return {"changed": True, "running": True, "document": document, "next": after}


def main() -> None:
    """Look or keep, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "engine": {"type": "dict", "required": True},
            "arrivals": {"choices": ["users", "rate"], "default": "users"},
            "steps": {"type": "list", "elements": "float", "default": []},
            "first": {"type": "float", "default": 1},
            "most": {"type": "float", "default": 1024},
            "seconds": {"type": "float", "default": 60},
            "burstiness": {"type": "float", "default": 1},
            "dataset": {"choices": ["random", "sharegpt", "mooncake", "qwen"], "default": "random"},
            "dataset_path": {"type": "path", "default": ""},
            "rounds": {"type": "int", "default": 3},
            "requests_each": {"type": "int", "default": 4},
            "least_requests": {"type": "int", "default": 16},
            # Counts of language model tokens, not secrets.
            "input_tokens": {"type": "int", "default": 0, "no_log": False},
            "output_tokens": {"type": "int", "default": 0, "no_log": False},
            "slo": {"type": "dict", "default": {}},
            "again": {"type": "bool", "default": False},
            "client": {"type": "dict", "default": {}},
            "state": {"choices": ["look", "sampled", "kept"], "default": "look"},
            "seen": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    work = {"look": look, "sampled": sample, "kept": keep}[module.params["state"]]
    try:
        result = work(module, Served(**module.params["engine"]))
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
