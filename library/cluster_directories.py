#!/usr/bin/python
"""Make the directories of a cluster on a host, and files in them, all in one look."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_directories
short_description: Make the directories of a cluster on a host, and files in them, all in one look
description:
  - Creates what is missing and sets owner and mode where they differ.
  - A directory that is a link, or belongs to another user, is refused, since what is kept there
    is secret or will be executed.
  - Root follows no link that others could have made, and refuses to administer a directory that
    the owner could replace by another one.
author: The vllm-ansible authors
options:
  directories:
    description: Absolute paths, parents first.
    type: list
    elements: str
    required: true
  owner:
    description: User that owns them. Only root can give a directory away.
    type: str
    required: true
  administered:
    description:
      - Those that belong to the connecting user and that the owner's group may read, so that a
        service cannot change what it is made of.
    type: list
    elements: str
    default: []
  private:
    description: Those that only the owner may enter; the others are open to the group.
    type: list
    elements: str
    default: []
  files:
    description:
      - Content by absolute path, written with mode 0644 in this order, after all directories. For
        those of O(administered); a module for each of some thirty files would take minutes on a
        slow host.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Make the cluster's directories
  cluster_directories:
    directories: [/opt/vllm-ansible/r1, /opt/vllm-ansible/r1/logs]
    owner: vllm

- name: Put a program in place
  cluster_directories:
    directories: [/opt/vllm-ansible/r1/program]
    administered: [/opt/vllm-ansible/r1/program]
    owner: vllm
    files: {/opt/vllm-ansible/r1/program/main.py: "{{ my_program }}"}
"""

RETURN = r"""
made:
  description: Directories that were made or set right.
  type: list
  elements: str
  returned: success
written:
  description: Files that were written, or given another mode.
  type: list
  elements: str
  returned: success
"""

import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.cluster.directories import keep, write
from ansible.module_utils.vllm_ansible.node.failure import Failure


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "administered": {"type": "list", "elements": "str", "default": []},
            "private": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        user = pwd.getpwnam(wanted["owner"])
    except KeyError:
        if module.check_mode:  # the user would have been made before
            made, written = wanted["directories"], list(wanted["files"])
            module.exit_json(changed=True, made=made, written=written)
        module.fail_json(msg=f"there is no user {wanted['owner']} on this host")
    try:
        made = keep(wanted, user, module.check_mode)
        replaced = write(wanted["files"], user, module.check_mode)
    except Failure as error:
        module.fail_json(msg=str(error), **error.details)
    changes = [
        {"before_header": path, "before": before or "", "after_header": path, "after": after}
        for path, before in replaced.items()
        if (after := wanted["files"][path]) != before
    ]
    module.exit_json(
        changed=bool(made or replaced),
        made=made,
        written=list(replaced),
        **({"diff": changes} if module._diff else {}),
        # What is as wanted need not travel back.
        invocation={"module_args": {**wanted, "files": list(wanted["files"])}},
    )


if __name__ == "__main__":
    main()
