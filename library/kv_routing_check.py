#!/usr/bin/python
"""Ask one prompt repeatedly through Dynamo and count where its cache was hit."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kv_routing_check
short_description: Ask one prompt repeatedly through Dynamo and count where its cache was hit
description:
  - Waits until Dynamo knows every engine, sends a prompt that was never sent before, waits for the
    KV events that Dynamo applies to its index, and asks the same beginning six times more.
  - Reads the hits of the prefix cache from each engine's own counters. Reports what it found
    instead of failing, so that a gate can judge it.
  - With O(part=known) it asks no engine, and reports which engines Dynamo knows.
  - Where engines are on several hosts, each reads its own counters, and several calls ask the same
    prompt. O(part=first) asks it on the host of Dynamo, O(part=hits) reads the counters on each
    host, O(part=repeat) asks it again.
author: The vllm-ansible authors
options:
  part:
    description: What this call does, by default everything.
    type: str
    choices: [all, known, first, repeat, hits]
    default: all
  seed:
    description: Makes the prompt of V(first) and V(repeat), which is the same for the same seed.
    type: str
    default: ""
  number:
    description: Which repeat this is.
    type: int
    default: 0
  url:
    description: Base address by which clients ask, without C(/v1). Needed where a prompt is asked.
    type: str
  front:
    description: Base address of Dynamo's frontend. Needed but with O(part=hits).
    type: str
  sidecars:
    description: Address and port at which the engines' sidecars take requests; others do not count.
    type: list
    elements: str
    default: []
  servers:
    description: Base address of each engine, whose C(/metrics) are read.
    type: list
    elements: str
    required: true
  api_key_file:
    description: File on this host that holds the key. Needed where a prompt is asked.
    type: path
  model:
    description: Name under which the model is served. Needed where a prompt is asked.
    type: str
  wait_seconds:
    description: Longest wait for the engines, and for the events of the first prompt.
    type: float
    default: 60
  timeout_seconds:
    description: Longest wait for one answer.
    type: float
    default: 120
"""

EXAMPLES = r"""
- name: See that repeats go to the engine that has them in its cache
  kv_routing_check:
    url: http://10.0.0.5:8000
    front: http://127.0.0.1:20003
    servers: ["http://127.0.0.1:20020", "http://127.0.0.1:20021"]
    api_key_file: /opt/vllm-ansible/r1/secrets/api_key
    model: r1

- name: See which engines Dynamo knows
  kv_routing_check:
    part: known
    front: http://127.0.0.1:20003
    servers: ["http://127.0.0.1:20020", "http://127.0.0.1:20021"]
    wait_seconds: 0
"""

RETURN = r"""
reason:
  description: Why a question was not answered, empty when all were.
  type: str
  returned: success
workers:
  description: How many engines Dynamo sends requests to.
  type: int
  returned: with O(part) V(all), V(known) and V(first)
block_size:
  description: Tokens of one block of the engines' caches.
  type: int
  returned: with O(part) V(all) and V(first), when every question was answered
prompt_tokens:
  description: Tokens of the prompt.
  type: int
  returned: with O(part) V(all), V(first) and V(repeat), when every question was answered
events:
  description: How many stored events Dynamo applied after the first question, or ever where none
    was asked.
  type: int
  returned: with O(part) V(all), V(known) and V(first)
repeats:
  description: For each repeat, the tokens that were hit in the cache of each engine.
  type: list
  returned: with O(part=all), when every question was answered
hits:
  description: The tokens that each engine has found in its cache so far.
  type: list
  returned: with O(part=hits)
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import kv_routing
from ansible.module_utils.vllm_ansible.node.engine.completion import Unanswered

ASKING = ("front", "url", "api_key_file", "model")


def found(wanted: dict[str, Any]) -> dict[str, Any]:
    """Do one part, and return what it found."""
    front, servers, sidecars = wanted["front"], wanted["servers"], wanted["sidecars"]
    wait, timeout, part = wanted["wait_seconds"], wanted["timeout_seconds"], wanted["part"]
    known: dict[str, Any] = {}
    if part == "known":
        known = kv_routing.state(front, len(servers), wait, sidecars)
        return known
    if part == "hits":
        return {"hits": kv_routing.hits(servers, timeout)}
    with open(wanted["api_key_file"], encoding="utf-8") as file:
        key = file.read().strip()
    asked = (wanted["url"], front)
    if part == "all":
        model = wanted["model"]
        known = kv_routing.look(*asked, servers, key, model, wait, timeout, sidecars)
        return known
    if part == "first":
        known["workers"] = kv_routing.wait_for_workers(front, len(servers), wait, sidecars)
    routing = kv_routing.Routing(*asked, key, wanted["model"], timeout, wanted["seed"])
    if part == "first":
        return {**known, **routing.first(wait)}
    return {"prompt_tokens": routing.repeat(wanted["number"])}


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "part": {"default": "all", "choices": ["all", "known", "first", "repeat", "hits"]},
            "seed": {"type": "str", "default": ""},
            "number": {"type": "int", "default": 0},
            "url": {"type": "str"},
            "front": {"type": "str"},
            "sidecars": {"type": "list", "elements": "str", "default": []},
            "servers": {"type": "list", "elements": "str", "required": True},
            "api_key_file": {"type": "path", "no_log": False},
            "model": {"type": "str"},
            "wait_seconds": {"type": "float", "default": 60},
            "timeout_seconds": {"type": "float", "default": 120},
        },
        required_if=[
            ("part", "known", ("front",)),
            *(("part", part, ASKING) for part in ("all", "first", "repeat")),
        ],
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, reason="", **found(module.params))
    except (OSError, Unanswered) as error:
        module.exit_json(changed=False, reason=str(error))


if __name__ == "__main__":
    main()
