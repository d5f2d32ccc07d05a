#!/usr/bin/python
"""Make one file system of the empty disks that come with an instance of AWS, and mount it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_store
short_description: Make one file system of the empty disks that come with an instance of AWS
description:
  - Makes RAID 0 of all disks whose model is C(Amazon EC2 NVMe Instance Storage), with XFS on it,
    and mounts that. No other disk is touched.
  - Refuses all of it where one of these disks holds anything, be it a signature alone. Nothing is
    ever wiped or forced.
  - What is mounted at the path already, such as by the AMI, is taken as it is. An array of ours
    that a boot left unmounted is mounted.
author: The vllm-ansible authors
options:
  path:
    description: Where it is mounted; made if it is not there.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Put the instance store to use
  instance_store:
    path: /opt/dlami/nvme
"""

RETURN = r"""
device:
  description: What is mounted, or would be.
  type: str
  returned: success
disks:
  description: Paths of the disks below it; none where what is mounted was there already.
  type: list
  elements: str
  returned: success
bytes:
  description: Bytes of these disks together.
  type: int
  returned: success
ours:
  description: Whether this module has made the file system, or would have.
  type: bool
  returned: success
commands:
  description: What was run, or would have been.
  type: list
  elements: list
  returned: success
"""

import json
import os
import shlex
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.nfs.mounts import mounted_at
from ansible.module_utils.vllm_ansible.node.system.instance_store import (
    LIST,
    MODEL,
    commands,
    disks,
    mounted,
    ours,
    used,
)


def do(module: AnsibleModule, *argv: str) -> str:
    """Run a command and return what it prints, or fail with it."""
    program = module.get_bin_path(argv[0], opt_dirs=["/usr/sbin", "/sbin"])
    if program is None:
        module.fail_json(
            msg=f"{argv[0]} is not installed",
            expected="lsblk and wipefs of util-linux, mdadm, and mkfs.xfs of xfsprogs",
            found=f"no {argv[0]}",
            where=module.params["path"],
            fix="install mdadm and xfsprogs on this host",
        )
    status, output, errors = module.run_command([program, *argv[1:]])
    if status != 0:
        module.fail_json(
            msg=f"{shlex.join(argv)} failed: {errors.strip() or output.strip()}",
            expected="exit status 0",
            found=f"exit status {status}",
            where=module.params["path"],
            command=shlex.join(argv),
            fix="see `lsblk` and `dmesg` on this host; this needs root (privileges)",
        )
    return str(output)


def refuse_used(module: AnsibleModule, holding: dict[str, str]) -> None:
    """Fail where a disk holds something: it may be the only copy."""
    told = "; ".join(f"{path}: {what}" for path, what in holding.items())
    module.fail_json(
        msg=f"the instance store is not empty: {told}",
        expected="disks without a partition, file system or signature, or one mounted at "
        f"{module.params['path']}",
        found=told,
        where=module.params["path"],
        fix="where it is mounted elsewhere, give that path as host_instance_store_path; else, if "
        "their content is not needed, run `wipefs --all` on these disks by hand",
    )


def refuse_files(module: AnsibleModule, path: str) -> None:
    """Fail where a mount would hide files."""
    if not os.path.isdir(path) or not os.listdir(path):
        return
    module.fail_json(
        msg=f"{path} has files, which a mount would hide",
        expected="an empty directory, or none",
        found=f"{len(os.listdir(path))} entries",
        where=path,
        fix="move them away, or give another path as host_instance_store_path",
    )


def make(module: AnsibleModule, found: list[dict[str, Any]]) -> tuple[str, list[list[str]]]:
    """Return the device to mount and what has to be run before; fail where anything is in use."""
    if not found:
        module.fail_json(
            msg="this host has no instance store",
            expected=f"disks of the model {MODEL}",
            found="none",
            where=module.params["path"],
            fix="set host_instance_store: skip, or use a type of instance that has local NVMe",
        )
    there = ours(found)
    if there is not None:
        return there, []
    holding = {}
    for one in found:
        signatures = do(module, "wipefs", "--no-act", "--parsable", one["path"])
        if what := used(one, signatures):
            holding[one["path"]] = what
    if holding:
        refuse_used(module, holding)
    device, run = commands(found)
    return device, run


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True
    )
    path = module.params["path"]
    found = disks(json.loads(do(module, "lsblk", *LIST)))
    run: list[list[str]] = []
    here = mounted_at(path)
    if here:
        device = here["source"]
        found, mine = mounted(found, path)
    else:
        device, run = make(module, found)
        refuse_files(module, path)
        run, mine = [*run, ["mount", "-t", "xfs", "-o", "noatime", device, path]], True
    if run and not module.check_mode:
        os.makedirs(path, mode=0o755, exist_ok=True)
        for argv in run:
            do(module, *argv)
    module.exit_json(
        changed=bool(run),
        device=device,
        disks=[one["path"] for one in found],
        bytes=sum(int(one["size"]) for one in found),
        ours=mine,
        commands=run,
    )


if __name__ == "__main__":
    main()
