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
    description: Where they lie; made with mode 0700 when missing.
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
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def as_wanted(path: Path, content: str, uid: int) -> bool:
    """Tell whether a file holds this content and only this user can read it."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    private = stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
    return private and found.st_uid == uid and path.read_text() == content


def put(path: Path, directory: Path, content: str, user: pwd.struct_passwd) -> None:
    """Replace a file in one step, so that nobody else can ever read what is in it."""
    # mkstemp makes the file 0600 before the first byte is in it.
    handle, temporary = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(content)
            # By its descriptor: the directory is the service's, who might put a link in its place.
            os.fchown(file.fileno(), user.pw_uid, user.pw_gid)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "contents": {"type": "dict", "required": True, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    directory = Path(wanted["directory"])
    try:
        user = pwd.getpwnam(wanted["owner"])
    except KeyError:
        if module.check_mode:  # the user would have been made before
            module.exit_json(changed=True, written=sorted(wanted["contents"]), removed=[])
        module.fail_json(msg=f"there is no user {wanted['owner']} on this host")
    try:
        written = [
            name
            for name, content in sorted(wanted["contents"].items())
            if not as_wanted(directory / name, content, user.pw_uid)
        ]
        removed = [name for name in sorted(wanted["absent"]) if os.path.lexists(directory / name)]
        if not module.check_mode:
            for name in removed:
                (directory / name).unlink()
        if written and not module.check_mode:
            if not directory.is_dir():
                directory.mkdir(mode=0o700, parents=True)
                os.chown(directory, user.pw_uid, user.pw_gid)
            for name in written:
                put(directory / name, directory, wanted["contents"][name], user)
    except OSError as error:
        module.fail_json(
            msg=f"cannot keep secrets in {directory}: {error}",
            expected=f"files that only {wanted['owner']} can read",
            found=str(error),
            where=str(directory),
            fix=f"give the directory to {wanted['owner']}, or choose another cluster_dir",
        )
    module.exit_json(changed=bool(written or removed), written=written, removed=removed)


if __name__ == "__main__":
    main()
