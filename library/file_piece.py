#!/usr/bin/python
"""Read a piece of a file."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_piece
short_description: Read a piece of a file
description:
  - So a large file reaches the controller with the privileges of the task and over any connection,
    without ever being whole in memory.
author: The vllm-ansible authors
options:
  path:
    description: The file.
    type: path
    required: true
  start:
    description: First byte.
    type: int
    default: 0
  size:
    description: Bytes at most.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Read the beginning
  file_piece:
    path: /var/log/syslog
    size: 4096
"""

RETURN = r"""
content:
  description: The bytes in base64; fewer than asked for at the end of the file.
  type: str
  returned: success
"""

import base64

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Read and report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "start": {"type": "int", "default": 0},
            "size": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        with open(wanted["path"], "rb") as handle:
            handle.seek(wanted["start"])
            content = handle.read(wanted["size"])
    except OSError as error:
        module.fail_json(
            msg=f"{wanted['path']} cannot be read: {error.strerror}",
            expected="a file that this user may read",
            found=str(error),
            where=wanted["path"],
            fix="run the stage again as the user who set the cluster up",
        )
    module.exit_json(changed=False, content=base64.b64encode(content).decode())


if __name__ == "__main__":
    main()
