#!/usr/bin/python
"""Bring the engine's container image to a host, prove it, and say how it is run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image
short_description: Bring the engine's container image to a host, prove it, and say how it is run
description:
  - Loads the tar of an image, or pulls it, where the tool does not have it yet; layers packages in;
    imports the engine in a container as engines run. What was proven is recorded in
    C(environments/<first 12 digits of the digest>) of the cluster's directory, as for an
    environment that was built.
  - What does not fit, is cut off or has another checksum is refused before it is loaded.
  - Works as the background task V(image) and outlives the connection; wait for it with
    M(background_wait), then look again with O(state=look).
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  digest:
    description: Digest of everything that decides what the image holds.
    type: str
    required: true
  state:
    description: Whether to bring what is missing, or only to look.
    type: str
    choices: [present, look]
    default: present
  tool:
    description: The program that runs containers; V(auto) takes podman, else docker.
    type: str
    choices: [auto, docker, podman]
    default: auto
  name:
    description: Name of the image in a registry. Not with O(file).
    type: str
    default: ""
  file:
    description: Tar of the image on this host, as C(docker save) writes it.
    type: str
    default: ""
  sha256:
    description: Checksum of O(file).
    type: str
    default: ""
  packages:
    description: Pinned packages to layer in.
    type: list
    elements: str
    default: []
  own:
    description: Our own packages, as sources; they are mounted into the container.
    type: list
    elements: dict
    default: []
  user:
    description: User that engines run as. Without it, the one of this connection.
    type: str
    default: ""
  accelerator:
    description: What the host computes on.
    type: str
    default: cpu
  writable:
    description: Directories of the cluster that the image's Python may write to.
    type: list
    elements: path
    default: []
  mounts:
    description: Further directories and files that engines read.
    type: list
    elements: path
    default: []
  privileged:
    description: Run containers with every privilege of the host.
    type: bool
    default: false
  ipc:
    description: Whether containers share the host's memory files and queues, or each has its own.
    type: str
    choices: [host, private]
    default: private
  environment:
    description: Environment of what fetches, such as proxies and mirrors.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Bring the engine's image
  engine_image:
    cluster_dir: /opt/vllm-ansible/r1
    digest: "{{ request.digest }}"
    name: docker.io/vllm/vllm-openai:v0.11.0
    user: vllm
"""

RETURN = r"""
complete:
  description: Whether the image is there and was proven.
  type: bool
  returned: success
tar_bytes:
  description: Length of O(file) on this host, 0 where there is none.
  type: int
  returned: success
room_bytes:
  description: How much of the tool's storage the image in O(file) takes, about. 0 without a file.
  type: int
  returned: success
loaded:
  description: Whether the tool has the image already, so that no tar is needed.
  type: bool
  returned: success
directory:
  description: Where what was proven is recorded.
  type: str
  returned: success
environment:
  description: What other stages need of a complete image, C(image) says how it is run.
  type: dict
  returned: success
manifest:
  description: Everything that is known of it. Empty unless complete.
  type: dict
  returned: success
old:
  description: Always empty; images are never removed.
  type: list
  elements: str
  returned: success
task:
  description: The background task that brings it, empty when there is nothing to bring.
  type: str
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.environment import build as environment
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.image import archive, install, recipe, tool
from ansible.module_utils.vllm_ansible.node.process import background

TASK = "image"


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "digest": {"type": "str", "required": True},
            "state": {"choices": ["present", "look"], "default": "present"},
            "tool": {"choices": ["auto", "docker", "podman"], "default": "auto"},
            "name": {"type": "str", "default": ""},
            "file": {"type": "str", "default": ""},
            "sha256": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "own": {"type": "list", "elements": "dict", "default": []},
            "user": {"type": "str", "default": ""},
            "accelerator": {"type": "str", "default": "cpu"},
            "writable": {"type": "list", "elements": "path", "default": []},
            "mounts": {"type": "list", "elements": "path", "default": []},
            "privileged": {"type": "bool", "default": False},
            "ipc": {"choices": ["host", "private"], "default": "private"},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**answer(module))
    except (Failure, background.ProcessError) as error:
        module.fail_json(msg=str(error), **error.details)


def answer(module: AnsibleModule) -> dict[str, Any]:
    """Return what is there, after starting to bring what is missing."""
    wanted = dict(module.params)
    sources = {str(name): str(value) for name, value in wanted["environment"].items()}
    found_tool = tool.find(wanted["tool"], {**os.environ, **sources})
    place = environment.directory(wanted["cluster_dir"], wanted["digest"])
    wanted |= {"directory": str(place), "sources": sorted(sources)}
    found = install.look(place, wanted["digest"], found_tool)
    complete = found["complete"]
    settings: dict[str, Any] = {}
    if complete or (wanted["state"] == "present" and not module.check_mode):
        settings = tool.settings(found_tool, wanted["user"])
        settings |= {name: wanted[name] for name in ("mounts", "privileged", "ipc")}
    image = {**settings, **found["manifest"].get("image", {})} if complete else {}
    there = complete or install.present(wanted, found_tool) is not None
    changed = not complete and wanted["state"] == "present"
    if changed and wanted["packages"]:
        recipe.expect_no_secrets(sources)
    if changed and not there:
        found_tool.storage()
    if changed and not there and os.path.exists(wanted["file"]):
        install.expect_room(wanted, found_tool)
    if changed and not module.check_mode:
        wanted["settings"] = settings
        background.start(
            os.path.join(wanted["cluster_dir"], "tasks"),
            TASK,
            lambda report: install.bring(wanted, found_tool, report),
            digest=wanted["digest"],
            again=True,
        )
    tar = os.path.isfile(wanted["file"])
    known = environment.summary(place, found["manifest"]) | {"image": image} if complete else {}
    return {
        "changed": changed,
        "complete": complete,
        "loaded": there,
        "tar_bytes": os.path.getsize(wanted["file"]) if tar else 0,
        "room_bytes": archive.room(wanted["file"]) if tar else 0,
        "directory": str(place),
        "environment": known,
        "manifest": found["manifest"] if complete else {},
        "old": [],
        "task": TASK if changed else "",
    }


if __name__ == "__main__":
    main()
