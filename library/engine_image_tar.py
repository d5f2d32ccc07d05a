#!/usr/bin/python
"""Take the tar of the engine's image from the other hosts of the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_tar
short_description: Take the tar of the engine's image from the other hosts of the cluster
description:
  - The weight store does it, as for a model of one file. What arrives is passed on before it is
    whole, and its checksum is judged piece by piece and as a whole.
  - Works as the background task V(image-tar); wait for it with M(background_wait).
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  images_dir:
    description: Directory in which tars are kept.
    type: path
    required: true
  source:
    description: Where this host has the tar already, if it does.
    type: path
  passed_on_by:
    description: The user who passes it on to others, and so must be able to read it.
    type: str
  manifests:
    description: The tar, as M(image_spread) returns it.
    type: dict
    required: true
  upstream:
    description: Whom this host asks for it.
    type: dict
    required: true
  addresses:
    description: Address of each host on the data plane.
    type: dict
    required: true
  address:
    description: That of this host.
    type: str
    required: true
  port:
    description: Where the others pass it on.
    type: int
    required: true
  key_file:
    description: File on the host with the cluster's key.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Take the tar from the others
  engine_image_tar:
    cluster_dir: /opt/vllm-ansible/r1
    images_dir: /opt/vllm-ansible/r1/images
    manifests: "{{ spread.manifests }}"
    upstream: "{{ spread.upstream[inventory_hostname] }}"
    addresses: {gh-01: 10.0.0.11, gh-02: 10.0.0.12}
    address: 10.0.0.12
    port: 20012
    key_file: /opt/vllm-ansible/r1/secrets/ray_token
"""

RETURN = r"""
task:
  description: The background task that takes it.
  type: str
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import forked, launcher
from ansible.module_utils.vllm_ansible.node.cluster.key import derived
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.weights.store.disk_failure import Kept
from ansible.module_utils.vllm_ansible.node.weights.store.gathering import Gathering, Part
from ansible.module_utils.vllm_ansible.node.weights.store.manifest import parse
from ansible.module_utils.vllm_ansible.node.weights.store.receiver import Peer, way_of
from ansible.module_utils.vllm_ansible.node.weights.store.shelf import Shelf
from ansible.module_utils.vllm_ansible.node.weights.store.signing import DOMAIN

TASK = "image-tar"
KEPT = Kept(
    name="the tar of the engine's image",
    arriving="the tar of the engine's image arrives",
    room_for="the tar and the image that it brings",
    variable="cluster_dir",
    besides="a host that has the tar under engine_image_file takes none",
)
STREAMS = 1
READ_SECONDS = 20.0


def work(wanted: dict[str, Any]) -> background.Work:
    """Return the task that completes the tar on this host."""
    ((slug, told),) = wanted["manifests"].items()
    known = {host: Peer(host, at, wanted["port"]) for host, at in wanted["addresses"].items()}
    peers = {name: way_of(hosts, known) for name, hosts in wanted["upstream"].items()}
    shelf = Shelf(wanted["images_dir"], slug)
    if wanted["source"]:
        place = os.path.join(shelf.final, next(iter(peers)))
        os.makedirs(shelf.final, exist_ok=True)
        if not os.path.exists(place):
            os.symlink(wanted["source"], place)
    part = Part(parse(slug, told["model"], told), shelf, peers, KEPT)
    gathering = Gathering(
        [part], derived(wanted["key_file"], DOMAIN), wanted["address"], None, STREAMS
    )

    def run(report: background.Report) -> dict[str, Any]:
        os.umask(0o022)  # the service passes it on
        gathering.run(report)
        return {"defects": gathering.defects}

    return run


def check_reading(source: str, user: str) -> None:
    """Refuse a tar that the user who passes it on may not read: root serves no network."""

    def read(tell: forked.Tell) -> None:
        launcher.become(user)
        tell("readable", os.access(source, os.R_OK))

    if not forked.run_each([read], READ_SECONDS, OSError)[0].get("readable"):
        raise Failure(
            f"{source} cannot be passed on: {user} may not read it",
            expected=f"a tar that {user}, who passes it on to the other hosts, may read",
            found="no permission",
            where=source,
            fix="let others enter every directory above it and read it (chmod o+rx, o+r), or let "
            f"{user} with setfacl",
        )


def main() -> None:
    """Start it, and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "images_dir": {"type": "path", "required": True},
            "source": {"type": "path"},
            "passed_on_by": {"type": "str"},
            "manifests": {"type": "dict", "required": True},
            "upstream": {"type": "dict", "required": True},
            "addresses": {"type": "dict", "required": True},
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, task=TASK)
    wanted = module.params
    where = os.path.join(wanted["cluster_dir"], "tasks")
    digest = next(iter(wanted["manifests"]))
    try:
        if wanted["source"] and wanted["passed_on_by"]:
            check_reading(wanted["source"], wanted["passed_on_by"])
        background.start(where, TASK, work(wanted), digest=digest, again=True)
    except (Failure, background.ProcessError) as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=True, task=TASK)


if __name__ == "__main__":
    main()
