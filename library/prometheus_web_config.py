#!/usr/bin/python
"""Write the file by which Prometheus' programs ask for a password."""

from __future__ import annotations

DOCUMENTATION = r"""
module: prometheus_web_config
short_description: Write the file by which Prometheus' programs ask for a password
description:
  - Prometheus, Alertmanager and node exporter read it with C(--web.config.file) again for each
    request. It holds a bcrypt hash of O(password). A file that lets in this user with this password
    is left as it is.
author: The vllm-ansible authors
options:
  path:
    description: The file. Only O(owner) reads it.
    type: path
    required: true
  owner:
    description: User that reads it.
    type: str
    required: true
  user:
    description: Name with which one is let in.
    type: str
    required: true
  password:
    description: Password with which one is let in.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Let in who knows the key
  prometheus_web_config:
    path: /opt/vllm-ansible/r1/observe/secrets/web.yml
    owner: vllm
    user: observe
    password: "{{ my_vaulted_password }}"
"""

RETURN = r"""
path:
  description: The file.
  type: str
  returned: success
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import safely
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.observe import web_config

MOST_BYTES = 4096


def kept(path: str) -> str:
    """Return what a file holds; nothing where there is none."""
    above, name = os.path.split(path)
    try:
        with safely.walked(above) as place:
            descriptor = safely.open_in(place, name)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            return file.read(MOST_BYTES)
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    path = wanted["path"]
    try:
        changed = not web_config.holds(kept(path), wanted["user"], wanted["password"])
        if changed and not module.check_mode:
            owner = pwd.getpwnam(wanted["owner"])
            content = web_config.text(wanted["user"], wanted["password"])
            above, name = os.path.split(path)
            with safely.walked(above) as place:
                safely.replace_in(place, name, content.encode(), owner.pw_uid, owner.pw_gid)
    except KeyError:
        module.fail_json(msg=f"there is no user {wanted['owner']} on this host")
    except Failure as failure:
        module.fail_json(msg=str(failure), **failure.details)
    except OSError as error:
        module.fail_json(
            msg=f"cannot write {path}: {error.strerror}",
            expected=f"a file that {wanted['owner']} can read",
            found=str(error),
            where=path,
            fix="remove what is in its place, and run the stage observe again",
        )
    module.exit_json(changed=changed, path=path)


if __name__ == "__main__":
    main()
