#!/usr/bin/python
"""Build wheels from source, detached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wheels
short_description: Build wheels from source, detached
description:
  - A wheel lies in C(wheels/<first 12 digits of its key>) of the cluster's directory, with a record
    of what it was built from and of its digest.
  - Building runs as the background task V(wheels) and outlives the connection; wait for it with
    M(background_wait), then look again with O(state=look).
  - What an interrupted build left is removed.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  wheels:
    description:
      - What the host needs, each with C(key), C(name), C(revision), C(directory), C(settings),
        C(environment), C(system), C(python), C(cuda), C(accelerator) and C(architecture).
    type: list
    elements: dict
    required: true
  builds:
    description: Keys of those that are built here; their sources are in RV(sources).
    type: list
    elements: str
    default: []
  state:
    description: Whether to build what is missing of O(builds), or only to look.
    type: str
    choices: [present, look]
    default: present
  uv:
    description: The uv to build with. Without it, the one in the cluster's tools.
    type: path
  find_links:
    description:
      - Directories or pages with wheels. Without any, what this host's pip is configured with.
    type: list
    elements: str
    default: []
  environment:
    description: Further environment of every build, such as proxies and mirrors.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: See which wheels this host has
  engine_wheels:
    cluster_dir: /opt/vllm-ansible/r1
    wheels: "{{ wheels_wanted }}"
    state: look
"""

RETURN = r"""
present:
  description: Records of the wheels that are here, by key.
  type: dict
  returned: success
places:
  description: The folder of each wheel that is needed, by key.
  type: dict
  returned: success
sources:
  description: Where the source of each wheel is expected by those that build it, by key.
  type: dict
  returned: success
wheels:
  description: What was asked for.
  type: list
  elements: dict
  returned: success
task:
  description: The background task that builds, empty when there is nothing to build.
  type: str
  returned: success
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.environment import built_wheels, wheel_build
from ansible.module_utils.vllm_ansible.node.process import background

TASK = "wheels"


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "wheels": {"type": "list", "elements": "dict", "required": True},
            "builds": {"type": "list", "elements": "str", "default": []},
            "state": {"choices": ["present", "look"], "default": "present"},
            "uv": {"type": "path"},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    cluster_dir = wanted["cluster_dir"]
    keys = [one["key"] for one in wanted["wheels"]]
    found = {key: built_wheels.look(cluster_dir, key) for key in keys}
    missing = [
        one
        for one in wanted["wheels"]
        if one["key"] in wanted["builds"] and found[one["key"]] is None
    ]
    changed = bool(missing) and wanted["state"] == "present"
    if changed and not module.check_mode:
        build(module, {**wanted, "keys": keys, "builds": missing})
    module.exit_json(
        changed=changed,
        present={key: record for key, record in found.items() if record is not None},
        places={key: str(built_wheels.place(cluster_dir, key)) for key in keys},
        sources={key: str(built_wheels.source(cluster_dir, key)) for key in keys},
        wheels=wanted["wheels"],
        task=TASK if changed else "",
    )


def build(module: AnsibleModule, wanted: dict[str, Any]) -> None:
    """Start building; what can be known to go wrong is said before."""
    wanted["uv"] = wanted["uv"] or os.path.join(wanted["cluster_dir"], "tools/bin/uv")
    sources = [built_wheels.source(wanted["cluster_dir"], one["key"]) for one in wanted["builds"]]
    needed = [(Path(wanted["uv"]), "run the stage prepare, which makes the cluster's tools")]
    needed += [(source, "copy the archive of the source there first") for source in sources]
    for path, fix in needed:
        if not path.exists():
            module.fail_json(
                msg=f"no wheel can be built without {path}",
                expected=f"a file {path}",
                found="no such file",
                where=str(path),
                fix=fix,
            )
    keys = json.dumps(sorted(one["key"] for one in wanted["builds"]))
    try:
        background.start(
            os.path.join(wanted["cluster_dir"], "tasks"),
            TASK,
            lambda report: wheel_build.build(wanted, report),
            digest=hashlib.sha256(keys.encode()).hexdigest(),
            again=True,
        )
    except background.ProcessError as error:
        module.fail_json(msg=str(error), **error.details)


if __name__ == "__main__":
    main()
