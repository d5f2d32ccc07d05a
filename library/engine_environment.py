#!/usr/bin/python
"""Build the engine's Python environment from a lock, detached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_environment
short_description: Build the engine's Python environment from a lock, detached
description:
  - The environment lies in C(environments/<first 12 digits of the digest>) of the cluster's
    directory. It holds exactly what the lock and our own packages name, by hash.
  - A complete environment costs a few directory reads and is left alone. One that was changed by
    hand is repaired in place, an incomplete one is built again.
  - Building runs as the background task V(environment) and outlives the connection; wait for it
    with M(background_wait), then look again with O(state=look).
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  shared_dir:
    description:
      - Directory that hosts share. One of them builds the environment, which is complete on a host
        once it was imported there. Nothing is removed from that directory.
    type: path
  form:
    description:
      - How it lies in O(shared_dir). As a V(tree) it is run from there. Packed for V(copy), each
        host unpacks it where its own would lie; an V(image) each host mounts there.
    type: str
    choices: [tree, copy, image]
    default: tree
  digest:
    description: Digest of everything the environment is made of.
    type: str
    required: true
  state:
    description:
      - Whether to build what is missing, or only to look.
      - V(alone) removes environments of other digests, but for those that a recorded or a running
        process uses and the newest of the others.
      - V(proven) only takes from O(shared_dir) what another host has built, and imports it.
    type: str
    choices: [present, look, alone, proven]
    default: present
  given:
    description:
      - Directory of an environment, or an image of Apptainer, that already exists, with
        vLLM and Ray. It is used as it is, with O(packages) laid over it, and nothing is built from
        a lock.
    type: path
  requirements:
    description: The lock on the host. Without it, the path in RV(requirements).
    type: path
  user:
    description: User that engines run as, who must be able to read O(given). Needs root.
    type: str
  accelerator:
    description: What engines compute with, such as V(nvidia); an image is given what it takes.
    type: str
    default: ""
  packages:
    description: Our own packages, as sources; they are packed into wheels on the host.
    type: list
    elements: dict
    default: []
  wheels:
    description:
      - Our own builds, each with C(name) and C(key), that M(engine_wheels) has put there; each is
        installed in place of what the lock names.
    type: list
    elements: dict
    default: []
  python:
    description: Python release, or the path of an interpreter.
    type: str
    default: "3.11"
  uv:
    description: The uv to build with. Without it, the one in the cluster's tools.
    type: path
  find_links:
    description:
      - Directories or pages with wheels. Without any, what this host's pip is configured with.
    type: list
    elements: str
    default: []
  torch_backend:
    description: Builds of torch to fetch from PyTorch's own index where O(find_links) is empty.
    type: str
    default: ""
  compiles:
    description: Whether the engine compiles while it runs, which takes Python's headers.
    type: bool
    default: false
  compile_bytecode:
    description:
      - Compile all of vLLM and Ray at once. Without it, only what the check of imports touches.
    type: bool
    default: true
  environment:
    description: Further environment of the build, such as proxies and mirrors.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Build the engine's environment
  engine_environment:
    cluster_dir: /opt/vllm-ansible/r1
    digest: "{{ request.digest }}"
    packages: "{{ request.packages }}"
"""

RETURN = r"""
built:
  description: Whether the environment is there and as it was built.
  type: bool
  returned: success
complete:
  description: The same, and of a shared one that it was imported on this host.
  type: bool
  returned: success
shared:
  description: Whether what other hosts take from O(shared_dir) is there.
  type: bool
  returned: success
directory:
  description: Where the environment is or will be.
  type: str
  returned: success
requirements:
  description: Where the lock is expected.
  type: str
  returned: success
environment:
  description:
    - C(directory), C(python), C(fingerprint) and C(versions) of a complete environment.
    - C(apptainer) is the image that it is in, if any.
  type: dict
  returned: success
manifest:
  description: Everything that is installed. Empty unless complete.
  type: dict
  returned: success
old:
  description: Environments that V(alone) removes, or has removed.
  type: list
  elements: str
  returned: success
task:
  description: The background task that builds it, empty when there is nothing to build.
  type: str
  returned: success
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import build_command
from ansible.module_utils.vllm_ansible.node.environment import (
    build as environment,
)
from ansible.module_utils.vllm_ansible.node.environment import (
    old_environments,
)
from ansible.module_utils.vllm_ansible.node.environment import (
    work as environment_work,
)
from ansible.module_utils.vllm_ansible.node.process import background

TASK = "environment"


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "shared_dir": {"type": "path"},
            "form": {"choices": ["tree", "copy", "image"], "default": "tree"},
            "digest": {"type": "str", "required": True},
            "state": {"choices": ["present", "look", "alone", "proven"], "default": "present"},
            "requirements": {"type": "path"},
            "given": {"type": "path"},
            "user": {"type": "str"},
            "accelerator": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "dict", "default": []},
            "wheels": {"type": "list", "elements": "dict", "default": []},
            "python": {"type": "str", "default": "3.11"},
            "uv": {"type": "path"},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "torch_backend": {"type": "str", "default": ""},
            "compiles": {"type": "bool", "default": False},
            "compile_bytecode": {"type": "bool", "default": True},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = environment_work.complete(module.params)
    place = Path(wanted["directory"])
    found = environment_work.look(wanted)
    complete = found["complete"]

    changed = environment_work.changes(wanted, found)
    if changed and not module.check_mode:
        start(module, wanted, found)
    old = []
    # What other hosts use of a directory that is shared is not known here.
    if place.parent.parent == Path(wanted["cluster_dir"]):
        old = old_environments.removable(wanted["cluster_dir"], wanted["digest"])
    if wanted["state"] == "alone":
        old = remove(module, wanted, old)
        changed = bool(old)
    module.exit_json(
        changed=changed,
        built=found["built"],
        complete=complete,
        shared=found["shared"],
        directory=str(place),
        requirements=wanted["requirements"],
        environment=environment.summary(place, found["manifest"]) if complete else {},
        manifest=found["manifest"] if complete else {},
        drift=found["drift"],
        old=[str(one) for one in old],
        task=TASK if changed and wanted["state"] != "alone" else "",
    )


def start(module: AnsibleModule, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Start what there is to do; what can be known to go wrong is said before."""
    # Digest and packages only: the task is the same whatever mirror it fetches from.
    try:
        work = environment_work.work(wanted, found)
        background.start(
            os.path.join(wanted["cluster_dir"], "tasks"),
            TASK,
            lambda report: work(wanted, report),
            digest=wanted["digest"],
            again=True,
        )
    except (background.ProcessError, build_command.BuildError) as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"the work on the environment cannot be begun: {error}",
            expected="directories that this user may write, with room, and the programs it takes",
            found=str(error),
            where=error.filename or wanted["directory"],
            fix="connect as the user who set the cluster up, and see to what the message names",
        )


def remove(module: AnsibleModule, wanted: dict[str, Any], old: list[Path]) -> list[Path]:
    """Remove what is old; not while something is being built, which may be another run's."""
    tasks_dir = os.path.join(wanted["cluster_dir"], "tasks")
    if background.look(tasks_dir, TASK)["state"] == "running":
        return []
    if module.check_mode:
        return old
    gone: list[Path] = []
    try:
        gone = old_environments.remove(old)
    except build_command.BuildError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"an old environment cannot be removed: {error}",
            expected="files that this user may remove",
            found=str(error),
            where=os.path.join(wanted["cluster_dir"], "environments"),
            fix="connect as the user who set the cluster up, or remove it by hand",
        )
    return gone


if __name__ == "__main__":
    main()
