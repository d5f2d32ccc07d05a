#!/usr/bin/python
"""Make the directories of a cluster on a host, all in one look."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_directories
short_description: Make the directories of a cluster on a host, all in one look
description:
  - Creates what is missing and sets owner and mode where they differ.
  - A directory that is a link, or belongs to a stranger, is refused, since what is kept there
    is secret or will be executed.
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
    description: Those that nobody but the owner may enter; the others are open to the group.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Make the cluster's directories
  cluster_directories:
    directories: [/opt/vllm-ansible/r1, /opt/vllm-ansible/r1/logs]
    owner: vllm
"""

RETURN = r"""
made:
  description: Directories that were made or mended.
  type: list
  elements: str
  returned: success
"""

import os
import pwd
import stat

from ansible.module_utils.basic import AnsibleModule


def named(uid: int) -> str:
    """Return the name of a user, or the number of one that this host does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def differs(path: str, uid: int, service: int, mode: int) -> bool:
    """Tell whether a directory is missing or not as wanted; refuse what must not be touched.

    Also root must not take over what a stranger owns: what lies in it would be trusted then.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{path} is no directory")
    if found.st_uid not in (uid, service, 0, os.getuid()):
        raise ValueError(f"{path} belongs to {named(found.st_uid)}, not to {named(uid)}")
    return found.st_uid != uid or stat.S_IMODE(found.st_mode) != mode


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "str", "required": True},
            "owner": {"type": "str", "required": True},
            "administered": {"type": "list", "elements": "str", "default": []},
            "private": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        user = pwd.getpwnam(wanted["owner"])
    except KeyError:
        if module.check_mode:  # the user would have been made before
            module.exit_json(changed=True, made=wanted["directories"])
        module.fail_json(msg=f"there is no user {wanted['owner']} on this host")
    made = []
    for path in wanted["directories"]:
        uid, gid, mode = user.pw_uid, user.pw_gid, 0o750
        if path in wanted["administered"]:
            uid, gid, mode = os.getuid(), user.pw_gid, 0o750
        elif path in wanted["private"]:
            mode = 0o700
        try:
            if not differs(path, uid, user.pw_uid, mode):
                continue
            made.append(path)
            if not module.check_mode:
                os.makedirs(path, mode=0o755, exist_ok=True)
                os.chown(path, uid, gid)
                os.chmod(path, mode)
        except (OSError, ValueError) as error:
            module.fail_json(
                msg=f"cannot make {path}: {error}",
                expected=f"a directory of {named(uid)}",
                found=str(error),
                where=path,
                fix=f"move what is there away, give it to {named(uid)} if it is meant for this "
                "cluster (chown), or choose another cluster_dir or models_dir",
            )
    module.exit_json(changed=bool(made), made=made)


if __name__ == "__main__":
    main()
