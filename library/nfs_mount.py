#!/usr/bin/python
"""Mount a path as fstab says; again if its options differ and no process uses it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_mount
short_description: Mount a path as fstab says
description:
  - Mounts what is not mounted. A mount with other options is mounted again, since C(fsc) cannot
    be given to one that is there; while processes use it, it is left alone and they are named.
author: The vllm-ansible authors
options:
  path:
    description: Where it is mounted, as fstab has it.
    type: path
    required: true
  source:
    description: What is mounted, as server:/path.
    type: str
    required: true
  options:
    description: Options as fstab has them.
    type: str
    required: true
  cache:
    description: Tag of the cache that is to hold it. Empty where none is.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Mount it
  nfs_mount:
    path: /srv/shared
    source: 10.0.0.1:/srv/shared
    options: vers=4.2,hard,noatime,fsc,_netdev,nofail
    cache: vllm-10a98e1f
"""

RETURN = r"""
differences:
  description: What the mount that was there had otherwise.
  type: list
  elements: str
  returned: success
"""

import os
import shlex

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.nfs import counters
from ansible.module_utils.vllm_ansible.node.nfs.mounts import (
    differences,
    mounted_at,
    other_cache,
    same_source,
)
from ansible.module_utils.vllm_ansible.node.nfs.users import users_of


def refuse_foreign(module: AnsibleModule, here: dict[str, str]) -> None:
    """Fail where something else is mounted."""
    path, source = module.params["path"], module.params["source"]
    if here["kind"].startswith("nfs") and same_source(here["source"], source):
        return
    module.fail_json(
        msg=f"{here['source']} is mounted at {path}",
        expected=source,
        found=f"{here['source']} ({here['kind']})",
        where=path,
        fix=f"umount {path}, or choose another path",
    )


def refuse_used(module: AnsibleModule, missing: list[str], users: list[str]) -> None:
    """Fail where processes would lose their files."""
    path = module.params["path"]
    module.fail_json(
        msg=f"{path} must be mounted again ({', '.join(missing)}), and processes use it",
        expected="no process uses it",
        found="; ".join(users[:10]) + ("; ..." if len(users) > 10 else ""),
        where=path,
        fix="end them (engines: ansible-playbook playbooks/stop.yml) and run this again, or boot: "
        "fstab has the new options",
    )


def refuse_held(module: AnsibleModule) -> None:
    """Fail where the kernel has given back what it had mounted before."""
    path = module.params["path"]
    here = mounted_at(path)
    if not here or not (left := lacking(module, here)):
        return
    module.fail_json(
        msg=f"{path} was mounted again, unchanged ({', '.join(left)}): another mount holds it",
        expected="no other mount of the same source, as the kernel shares one between them",
        found=", ".join(left),
        where=path,
        fix=f"end what has it mounted elsewhere, such as containers (grep -l {path} "
        "/proc/[0-9]*/mountinfo), and run this again, or boot: fstab has the new options",
    )


def lacking(module: AnsibleModule, here: dict[str, str]) -> list[str]:
    """Return what a mount would need to be mounted anew for."""
    asked = module.params
    found: list[str] = differences(here["options"], asked["options"])
    found += other_cache(counters.caches_of(asked["path"]), asked["cache"])
    return found


def do(module: AnsibleModule, *argv: str) -> None:
    """Run a command, or fail with it."""
    status, output, errors = module.run_command(list(argv))
    if status != 0:
        module.fail_json(
            msg=f"{shlex.join(argv)} failed: {errors.strip() or output.strip()}",
            expected="exit status 0",
            found=f"exit status {status}",
            where=module.params["path"],
            command=shlex.join(argv),
            fix="see that the server exports it to this host (exportfs -s there), that port 2049 "
            "is open between them, and that nothing is mounted below",
        )


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "options": {"type": "str", "required": True},
            "cache": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    here = mounted_at(path)
    missing: list[str] = []
    if here:
        refuse_foreign(module, here)
        missing = lacking(module, here)
    if missing and (users := users_of(path)):
        refuse_used(module, missing, users)
    if not module.check_mode:
        if missing:
            do(module, "umount", path)
        if missing or here is None:
            os.makedirs(path, exist_ok=True)
            do(module, "mount", path)
        if missing:
            refuse_held(module)
    module.exit_json(changed=here is None or bool(missing), differences=missing)


if __name__ == "__main__":
    main()
