#!/usr/bin/python
"""Pass weights on to the other hosts of a cluster while they arrive."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights_relay
short_description: Pass weights on to the other hosts of a cluster while they arrive
description:
  - Starts a program, detached, that gives the files of some models to hosts that hold the
    cluster's key, and returns which of them this host has. It ends by itself when no host asks any
    more. Whoever has no key gets a refusal.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  task:
    description: Name of the background task, where another one passes something else on.
    type: str
    default: weights-relay
  models_dir:
    description: Directory of the models. Needed to start.
    type: path
  manifests:
    description: What the models consist of, as M(hf_snapshot) returns it.
    type: dict
    default: {}
  address:
    description: The address to listen on, of the data plane. Needed to start.
    type: str
  port:
    description: The port to listen on. Needed to start.
    type: int
  key_file:
    description: File on the host with the cluster's key. Needed to start.
    type: path
  user:
    description: The user that it runs as. Without it, the one of this connection.
    type: str
  idle_seconds:
    description: How long it waits for a request before it ends.
    type: float
    default: 900
  state:
    description: Whether it shall run.
    type: str
    choices: [started, stopped]
    default: started
"""

EXAMPLES = r"""
- name: Pass weights on
  weights_relay:
    cluster_dir: /opt/vllm-ansible/r1
    models_dir: /opt/vllm-ansible/r1/models
    manifests: "{{ snapshot.manifests }}"
    address: 10.0.0.11
    port: 20014
    key_file: /opt/vllm-ansible/r1/secrets/ray_token
"""

RETURN = r"""
has:
  description: By model, the files that this host has, verified.
  type: dict
  returned: when O(state) is V(started)
"""

import hashlib
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import background, port_holders
from ansible.module_utils.vllm_ansible.node.process.family import until
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.weights.store import sender
from ansible.module_utils.vllm_ansible.node.weights.store.manifest import Manifest, parse
from ansible.module_utils.vllm_ansible.node.weights.store.shelf import Shelf

START_SECONDS = 20.0


def begin(wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    """Start it unless it runs for the same models, and tell what is here."""
    shelves = {
        slug: (Shelf(wanted["models_dir"], slug), parse(slug, told["model"], told))
        for slug, told in wanted["manifests"].items()
    }
    changed = False if check else start(wanted, shelves)
    has = {slug: files_of(*one) for slug, one in shelves.items()}
    return {"changed": changed, "has": has}


def files_of(shelf: Shelf, manifest: Manifest) -> list[str]:
    """Return the files of a model that can be passed on."""
    stock = shelf.stock()
    return [file.name for file in manifest.files if shelf.ready(file, stock)]


def start(wanted: dict[str, Any], shelves: dict[str, tuple[Shelf, Manifest]]) -> bool:
    """Start the program and wait until it listens."""
    where, port, name = f"{wanted['cluster_dir']}/tasks", wanted["port"], wanted["task"]
    text = json.dumps([wanted["address"], port, wanted["models_dir"], wanted["manifests"]])
    task = sender.work(
        (wanted["address"], port), wanted["key_file"], shelves, wanted["idle_seconds"]
    )
    started = background.start(
        where,
        name,
        task,
        user=wanted["user"],
        digest=hashlib.sha256(text.encode()).hexdigest(),
        again=True,
    )
    until(
        lambda: (
            port in port_holders.listeners() or background.look(where, name)["state"] != "running"
        ),
        START_SECONDS,
    )
    status = background.look(where, name, 10)
    if status["state"] != "running":
        found = status.get("message") or " / ".join(status["log_tail"]) or status["state"]
        raise Failure(
            f"weights cannot be passed on: {found}",
            expected=f"a program that listens on {wanted['address']}:{port}",
            found=found,
            where=status["log"],
            fix=f"see who has the port: `ss -tlnp 'sport = :{port}'`; or set port_base",
        )
    return bool(started["changed"])


def main() -> None:
    """Start or stop, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "task": {"type": "str", "default": "weights-relay"},
            "models_dir": {"type": "path"},
            "manifests": {"type": "dict", "default": {}},
            "address": {"type": "str"},
            "port": {"type": "int"},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "no_log": False},
            "user": {"type": "str"},
            "idle_seconds": {"type": "float", "default": 900},
            "state": {"choices": ["started", "stopped"], "default": "started"},
        },
        required_if=[("state", "started", ["address", "port", "key_file", "models_dir"])],
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        if wanted["state"] == "started":
            result = begin(wanted, module.check_mode)
        else:
            where = f"{wanted['cluster_dir']}/tasks"
            result = {"changed": background.stop(where, wanted["task"], module.check_mode)}
    except (Failure, ProcessError) as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
