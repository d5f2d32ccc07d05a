#!/usr/bin/python
"""Remove what a cluster kept on a host, but for what is to stay."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_removal
short_description: Remove what a cluster kept on a host, but for what is to stay
description:
  - Only removes a directory that this project made, which it knows by what lies in it.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  run_dir:
    description: The cluster's directory of sockets.
    type: path
    required: true
  keep:
    description: Names in the cluster's directory that stay.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Remove everything but weights and environments
  cluster_removal:
    cluster_dir: /opt/vllm-ansible/r1
    run_dir: /run/vllm-r1
    keep: [environments, models, tools]
"""

RETURN = r"""
removed:
  description: What was removed.
  type: list
  elements: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import build_command, safely
from ansible.module_utils.vllm_ansible.node.environment import image_mount

# What role host makes in every cluster's directory.
MARKS = ("processes", "logs", "tasks")
LOCK = "lock.json"


def ours(directory: str) -> bool:
    """Tell whether a directory looks like one of ours, so that a slip of the pen deletes none."""
    return any(os.path.isdir(os.path.join(directory, mark)) for mark in MARKS)


def targets(cluster_dir: str, run_dir: str, keep: list[str]) -> list[str]:
    """Return what is there and does not stay."""
    found = []
    if os.path.isdir(cluster_dir) and not os.path.islink(cluster_dir):
        # The lock is the run's own: it goes with the rest, but alone it is nothing to remove.
        names = sorted(set(os.listdir(cluster_dir)) - {LOCK})
        if set(names) - set(keep):
            found = [os.path.join(cluster_dir, name) for name in names if name not in keep]
            found += [os.path.join(cluster_dir, LOCK)]
        if names and not set(names) & set(keep):
            found = [cluster_dir]
    if os.path.isdir(run_dir) and not os.path.islink(run_dir):
        found.append(run_dir)
    return found


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "run_dir": {"type": "path", "required": True},
            "keep": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    directory = wanted["cluster_dir"]
    # A run holds the lock before anything else is made.
    nothing = {LOCK, *wanted["keep"]}
    strange = sorted(set(os.listdir(directory)) - nothing) if os.path.isdir(directory) else []
    if strange and not ours(directory):
        module.fail_json(
            msg=f"{directory} is not a directory of this project; nothing was removed",
            expected=f"one of {', '.join(MARKS)} in it",
            found=", ".join(strange[:8]),
            where=directory,
            fix="correct cluster_dir, or remove the directory by hand",
        )
    found = targets(directory, wanted["run_dir"], wanted["keep"])
    for path in found if not module.check_mode else []:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                for place in image_mount.below(path):
                    image_mount.unmount(place, os.environ)
                safely.remove_tree(path)
            elif os.path.lexists(path):
                os.unlink(path)
        except build_command.BuildError as error:
            module.fail_json(msg=f"cannot unmount what is below {path}", **error.details)
        except OSError as error:
            module.fail_json(
                msg=f"cannot remove {path}: {error}",
                expected="files that this user may remove",
                found=str(error),
                where=path,
                fix="connect as the user who set the cluster up, or remove it by hand",
            )
    module.exit_json(changed=bool(found), removed=found)


if __name__ == "__main__":
    main()
