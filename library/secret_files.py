#!/usr/bin/python
"""Put secrets into files that only one user can read."""

from __future__ import annotations

DOCUMENTATION = r"""
module: secret_files
short_description: Put secrets into files that only one user can read
description:
  - All secrets of a host in one look. No content is ever returned, logged or passed as an
    argument of a command.
author: The vllm-ansible authors
options:
  directory:
    description: Where they lie. Made when missing, for the group of the owner to read.
    type: path
    required: true
  owner:
    description: User that may read them.
    type: str
    required: true
  contents:
    description: Content by file name.
    type: dict
    required: true
  absent:
    description: Names of files that are not wanted any more.
    type: list
    elements: str
    default: []
  parents:
    description: Directories to make before, in the same look, as M(cluster_directories) does.
    type: dict
    default: {}
    suboptions:
      directories:
        description: What to make, parents first.
        type: list
        elements: str
        default: []
      administered:
        description: Those of them that belong to the connecting user.
        type: list
        elements: str
        default: []
      private:
        description: Those of them that only the owner may enter.
        type: list
        elements: str
        default: []
"""

EXAMPLES = r"""
- name: Put the keys in place
  secret_files:
    directory: /opt/vllm-ansible/r1/secrets
    owner: vllm
    contents:
      api_key: "{{ my_vaulted_key }}"
"""

RETURN = r"""
made:
  description: Directories that were made, or given another owner or mode.
  type: list
  elements: str
  returned: success
written:
  description: Names of the files that were written.
  type: list
  elements: str
  returned: success
removed:
  description: Names of the files that were removed.
  type: list
  elements: str
  returned: success
"""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import safely
from ansible.module_utils.vllm_ansible.node.cluster import directories
from ansible.module_utils.vllm_ansible.node.failure import Failure


@contextmanager
def at(directory: str, name: str) -> Iterator[tuple[safely.Directory, str]]:
    """Go where a file lies or will lie: the service may own the directory and lay links there."""
    above, last = os.path.split(os.path.join(directory, name))
    with safely.walked(above) as place:
        yield place, last


def as_wanted(directory: str, name: str, content: str, uid: int) -> bool:
    """Tell whether a file holds this content and only this user can read it."""
    wanted = content.encode()
    try:
        with at(directory, name) as (place, last):
            if not stat.S_ISREG(place.look(last).st_mode):
                return False
            with os.fdopen(safely.open_in(place, last), "rb") as file:
                found = os.fstat(file.fileno())
                private = stat.S_IMODE(found.st_mode) == 0o600 and found.st_uid == uid
                return private and file.read(len(wanted) + 1) == wanted
    except FileNotFoundError:
        return False


def there(directory: str, name: str) -> bool:
    """Tell whether something has this name."""
    try:
        with at(directory, name) as (place, last):
            place.look(last)
    except FileNotFoundError:
        return False
    return True


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "contents": {"type": "dict", "required": True, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "parents": {
                "type": "dict",
                "default": {},
                "apply_defaults": True,
                "options": {
                    "directories": {"type": "list", "elements": "str", "default": []},
                    "administered": {"type": "list", "elements": "str", "default": []},
                    "private": {"type": "list", "elements": "str", "default": []},
                },
            },
        },
        supports_check_mode=True,
    )
    wanted = module.params
    directory = wanted["directory"]
    try:
        user = pwd.getpwnam(wanted["owner"])
    except KeyError:
        if module.check_mode:  # the user would have been made before
            paths = wanted["parents"]["directories"]
            module.exit_json(
                changed=True, made=paths, written=sorted(wanted["contents"]), removed=[]
            )
        module.fail_json(msg=f"there is no user {wanted['owner']} on this host")
    try:
        made = directories.keep(wanted["parents"], user, module.check_mode)
        written = [
            name
            for name, content in sorted(wanted["contents"].items())
            if not as_wanted(directory, name, content, user.pw_uid)
        ]
        removed = [name for name in sorted(wanted["absent"]) if there(directory, name)]
        if not module.check_mode:
            for name in removed:
                with at(directory, name) as (place, last):
                    os.unlink(last, dir_fd=place.descriptor)
        if written and not module.check_mode:
            if not os.path.isdir(directory):
                # The owner reads what is there and cannot put anything else in its place.
                service = safely.User.of(user)
                safely.keep_directory(directory, os.geteuid(), user.pw_gid, 0o750, service)
            for name in written:
                content = wanted["contents"][name].encode()
                with at(directory, name) as (place, last):
                    safely.replace_in(place, last, content, user.pw_uid, user.pw_gid)
    except Failure as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"cannot keep secrets in {directory}: {error}",
            expected=f"files that only {wanted['owner']} can read",
            found=str(error),
            where=directory,
            fix=f"give the directory to {wanted['owner']}, or choose another cluster_dir",
        )
    module.exit_json(
        changed=bool(made or written or removed), made=made, written=written, removed=removed
    )


if __name__ == "__main__":
    main()
