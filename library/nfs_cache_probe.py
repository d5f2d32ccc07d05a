#!/usr/bin/python
"""Prove where a file that is read twice over NFS comes from."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_cache_probe
short_description: Prove where a file that is read twice over NFS comes from
description:
  - Writes a file into C(.nfs-cache-probe) of a mounted directory, lets memory forget it, reads it,
    again and again, counts the bytes that came from the server each time, and removes it.
  - The result is kept in a file, and returned without measuring while host and mount are the same.
  - In check mode nothing is measured.
author: The vllm-ansible authors
options:
  path:
    description: Where the directory is mounted.
    type: path
    required: true
  name:
    description: Name of this host, unlike that of any other that has the directory.
    type: str
    required: true
  bytes:
    description: Size of the file.
    type: int
    required: true
  cached:
    description:
      - Whether the second read is to come from a cache; it is repeated until it does, a few times.
    type: bool
    required: true
  record:
    description: The file that keeps what was found.
    type: path
    required: true
  measured:
    description: What was measured, such as source and options; a proof of something else is none.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Prove that the cache caches
  nfs_cache_probe:
    path: /srv/shared
    name: gh-01
    bytes: 67108864
    cached: true
    record: /opt/vllm-ansible/main/evidence/nfs_cache.json
  register: __nfs_cache_proof
"""

RETURN = r"""
proof:
  description:
    - C(bytes), C(fsc), the statistics of the cache C(before) and C(after), and C(reads), each with
      C(seconds), C(server_bytes), C(memory_bytes) and C(cache_reads). Empty in check mode
      where none is kept.
  type: dict
  returned: success
again:
  description: Whether it was measured now.
  type: bool
  returned: success
"""

import errno
import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import launcher
from ansible.module_utils.vllm_ansible.node.nfs import probe


def kept(record: str, measured: dict[str, Any]) -> dict[str, Any]:
    """Return a proof of the same thing since the same boot; nothing where there is none."""
    try:
        with open(record, encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError):
        return {}
    proof: dict[str, Any] = found.get("proof", {})
    return proof if found.get("measured") == measured else {}


def refuse(module: AnsibleModule, error: OSError) -> None:
    """Fail with what the file system said."""
    path = module.params["path"]
    module.fail_json(
        msg=f"{path} takes no file of this host: {error.strerror or error}",
        expected=f"a directory {probe.DIRECTORY} that this host may write to, and room in it",
        found=str(error),
        where=str(error.filename or path),
        fix="make room on the server, or lower nfs_cache_probe_mib"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else f"on the server, in the shared directory: install -d -m 1777 -o 65534 "
        f"{probe.DIRECTORY}; root of a client is the user nobody there unless it is exported with "
        "no_root_squash",
    )


def main() -> None:
    """Tell what is known, or measure, keep and tell it."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "bytes": {"type": "int", "required": True},
            "cached": {"type": "bool", "required": True},
            "record": {"type": "path", "required": True},
            "measured": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    asked = module.params
    size, cached = asked["bytes"], asked["cached"]
    same = {**asked["measured"], "boot": launcher.boot_id(), "bytes": size, "cached": cached}
    proof = kept(asked["record"], same)
    again = not proof and not module.check_mode
    if again:
        try:
            proof = probe.probe(asked["path"], asked["name"], size, cached)
        except OSError as error:
            refuse(module, error)
        # A proof that failed is none: the next run measures again.
        if not cached or (proof["fsc"] and probe.from_cache(proof["reads"][-1], size)):
            os.makedirs(os.path.dirname(asked["record"]), exist_ok=True)
            launcher.write_json(asked["record"], {"measured": same, "proof": proof}, 0o644)
    module.exit_json(changed=False, proof=proof, again=again)


if __name__ == "__main__":
    main()
