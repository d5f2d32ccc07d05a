#!/usr/bin/python
"""Look at where engines' weights lie on a host, and how fast they are read there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_storage_info
short_description: Look at where engines' weights lie on a host, and how fast they are read there
description:
  - Returns the file system under each engine's model, what its files hold by layer, which share of
    them is in memory, the way in which vLLM will read them, and the rate of that way.
  - The rate is measured by a bounded read of parts of the model's own files that are not in memory,
    and kept with a fingerprint of files, mount and way, so that it is measured once. Nothing is
    measured in check mode, nor while a process of this host uses the files.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory. Rates are kept in C(weights-rates.json) there.
    type: path
    required: true
  engines:
    description: Engines that will start here, as the filter C(engines_to_load) lists them.
    type: list
    elements: dict
    required: true
    options:
      name: {description: Name of the engine., type: str, required: true}
      path: {description: Directory of its model on this host., type: path, required: true}
      fingerprint:
        description: What the stage weights knows the model by.
        type: str
        default: ""
      arguments: {description: Words of its command line., type: list, elements: str, default: []}
      ranks: {description: How many of its ranks are here., type: int, default: 1}
  measure:
    description: Whether a rate that is not kept may be measured.
    type: bool
    default: true
  most_mib:
    description: Read no more than this.
    type: int
    default: 512
  most_seconds:
    description: Read for no longer than this.
    type: float
    default: 4
"""

EXAMPLES = r"""
- name: Look at where the weights lie
  weights_storage_info:
    cluster_dir: /opt/vllm-ansible/r1
    engines:
      - {name: chat, path: /srv/models/chat, ranks: 8}
  register: storage
"""

RETURN = r"""
engines:
  description:
    - By engine, C(storage), C(contents), C(cached), C(way), C(readers) and C(rate); C(why) says why
      there is no rate, empty where there is one.
  type: dict
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import in_use
from ansible.module_utils.vllm_ansible.node.weights.loading import rate, storage, way

KEPT = "weights-rates.json"


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "engines": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "path": {"type": "path", "required": True},
                    "fingerprint": {"type": "str", "default": ""},
                    "arguments": {"type": "list", "elements": "str", "default": []},
                    "ranks": {"type": "int", "default": 1},
                },
            },
            "measure": {"type": "bool", "default": True},
            "most_mib": {"type": "int", "default": 512},
            "most_seconds": {"type": "float", "default": 4},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    users = in_use.users_of({one["path"] for one in wanted["engines"]})
    found = {}
    for engine in wanted["engines"]:
        try:
            found[engine["name"]] = looked_at(engine, wanted, users, module.check_mode)
        except (OSError, Failure) as error:
            # Nobody is kept from starting by what was only to be foretold.
            found[engine["name"]] = {"why": str(error)}
    module.exit_json(changed=False, engines=found)


def looked_at(
    engine: dict[str, Any], wanted: dict[str, Any], users: dict[str, int], check: bool
) -> dict[str, Any]:
    """Return what there is to know of one engine's weights."""
    path, words = engine["path"], engine["arguments"]
    place = storage.look(path, wanted["cluster_dir"])
    files = storage.weight_files(path)
    held = storage.contents(path, files)
    reads = way.way_of(place["kind"], held["bytes"], place["memory_available"], words)
    readers = way.readers_of(reads, engine["ranks"], words)
    kept_in = os.path.join(wanted["cluster_dir"], KEPT)
    mark = rate.fingerprint(place, engine["fingerprint"], reads, readers)
    known, why = rate.kept(kept_in, path, mark), ""
    if not known:
        why = refused(reads, path, wanted, users, check)
    if not known and not why:
        known = rate.measure(
            files, reads, readers, wanted["most_mib"] << 20, wanted["most_seconds"]
        )
        why = known.pop("why", "")
        if known:
            rate.keep(kept_in, path, mark, known)
    return {
        "storage": place,
        "contents": held,
        "cached": storage.in_memory(files),
        "way": reads,
        "readers": readers,
        "rate": known,
        "why": why,
    }


def refused(
    reads: str, path: str, wanted: dict[str, Any], users: dict[str, int], check: bool
) -> str:
    """Return why the rate is not measured, empty where it may be."""
    if reads == way.NOTHING:
        return "no file is read"
    if reads == way.UNKNOWN:
        return "it is loaded by a program whose reads are not known here"
    if check or not wanted["measure"]:
        return "it was not measured before"
    if path in users:
        return f"process {users[path]} uses its files"
    return ""


if __name__ == "__main__":
    main()
