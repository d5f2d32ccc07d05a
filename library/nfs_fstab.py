#!/usr/bin/python
"""Let a path be mounted at boot: one line of fstab, and a file that is never half written."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_fstab
short_description: Let a path be mounted at boot
description:
  - Keeps one line for a path in fstab and leaves all others as they are.
  - The file is replaced in one step, since a host with half of it does not boot; the one from
    before the first change is kept next to it.
author: The vllm-ansible authors
options:
  path:
    description: Where it is mounted.
    type: path
    required: true
  source:
    description: What is mounted, as server:/path.
    type: str
    required: true
  kind:
    description: Kind of file system.
    type: str
    default: nfs
  options:
    description: Options of the mount.
    type: str
    required: true
  fstab:
    description: The file.
    type: path
    default: /etc/fstab
"""

EXAMPLES = r"""
- name: Let it be mounted at boot
  nfs_fstab:
    path: /srv/shared
    source: 10.0.0.1:/srv/shared
    options: vers=4.2,hard,noatime,fsc,_netdev,nofail
"""

RETURN = r"""
before:
  description: C(source), C(kind) and C(options) that the file had for the path; null for none.
  type: dict
  returned: success
"""

import os
import tempfile
from contextlib import suppress

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.nfs.fstab import in_fstab, with_line

# What is no UTF-8 in somebody's comment is written back as it was.
AS_IT_IS = "surrogateescape"
# The file from before it was first changed.
KEPT = ".before-vllm-ansible"


def read(path: str) -> str:
    """Return the content of a file, nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors=AS_IT_IS, newline="") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""


def replace(module: AnsibleModule, path: str, text: str) -> None:
    """Replace a file in one step, with its owner, mode and label as they were."""
    # The file itself stays under another name: that takes no room.
    with suppress(FileNotFoundError, FileExistsError):
        os.link(path, f"{path}{KEPT}")
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".fstab-")
    module.add_cleanup_file(temporary)
    with os.fdopen(handle, "w", encoding="utf-8", errors=AS_IT_IS, newline="") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    module.atomic_move(temporary, path)


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "kind": {"type": "str", "default": "nfs"},
            "options": {"type": "str", "required": True},
            "fstab": {"type": "path", "default": "/etc/fstab"},
        },
        supports_check_mode=True,
    )
    asked = module.params
    fstab = os.path.realpath(asked["fstab"])
    text = read(fstab)
    wanted = with_line(text, asked["path"], asked["source"], asked["kind"], asked["options"])
    if wanted != text and not module.check_mode:
        try:
            replace(module, fstab, wanted)
        except OSError as error:
            module.fail_json(
                msg=f"{fstab} cannot be written and is as it was: {error.strerror or error}",
                expected=f"room and leave to write to {os.path.dirname(fstab)}",
                found=str(error),
                where=fstab,
                fix="make room on that disk (df), or let this run use root",
            )
    module.exit_json(changed=wanted != text, before=in_fstab(asked["path"], text))


if __name__ == "__main__":
    main()
