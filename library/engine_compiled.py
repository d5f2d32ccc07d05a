#!/usr/bin/python
"""Look at, pack and take over what an engine has compiled."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_compiled
short_description: Look at, pack and take over what an engine has compiled
description:
  - What engines compile at their start stays on their host. Packed, it spares another host that
    work; see the action plugin M(engine_compiled_share), which brings it from host to host.
author: The vllm-ansible authors
options:
  cache:
    description: The engine's cache, a directory of its user. It may not be there yet.
    type: path
    required: true
  user:
    description: The user who owns it. The connecting one when omitted.
    type: str
  state:
    description:
      - V(packed) makes the archive, V(present) adds the files of one, V(look) changes nothing.
    type: str
    choices: [look, packed, present]
    default: look
  archive:
    description: The archive on this host.
    type: path
  limit_bytes:
    description: More than that is not packed.
    type: int
    default: 2147483648
"""

EXAMPLES = r"""
- name: See what was compiled
  engine_compiled:
    cache: /opt/vllm-ansible/r1/engines/chat/cache
"""

RETURN = r"""
compiled:
  description: Files and bytes that were compiled here.
  type: dict
  returned: success
packed:
  description: Files, size (bytes) and SHA-256 of the archive.
  type: dict
  returned: with V(packed)
added:
  description: Files that were not here.
  type: int
  returned: with V(present)
"""

import os
import tarfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import compiled

VERBS = {"look": "look at", "packed": "pack", "present": "unpack"}


def main() -> None:
    """Look, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cache": {"type": "path", "required": True},
            "user": {"type": "str"},
            "state": {"choices": ["look", "packed", "present"], "default": "look"},
            "archive": {"type": "path"},
            "limit_bytes": {"type": "int", "default": 2147483648},
        },
        required_if=[("state", "packed", ["archive"]), ("state", "present", ["archive"])],
        supports_check_mode=True,
    )
    wanted = module.params
    looks = wanted["state"] == "look" or module.check_mode
    try:
        done = {"changed": wanted["state"] == "present"} if looks else act(wanted)
        result = {**done, "compiled": look(wanted)}
    except (compiled.CompiledError, tarfile.TarError, OSError) as error:
        module.fail_json(
            msg=f"cannot {VERBS['look' if looks else wanted['state']]} the compiled files: {error}",
            expected=f"at most {wanted['limit_bytes']} bytes, and room for them",
            found=str(error),
            where=f"{wanted['cache']} and {wanted['archive']}",
            fix="make room there, or set vllm_share_compiled: never, and every host compiles",
        )
    module.exit_json(**result)


def look(wanted: dict[str, object]) -> dict[str, object]:
    """Count what was compiled, as the user who owns it: names and sizes of others are not ours."""
    cache, user = str(wanted["cache"]), str(wanted["user"]) if wanted["user"] else None
    # Before the first start there may be no such user yet.
    there = os.path.lexists(cache)
    return dict(compiled.as_user(user if there else None, lambda: compiled.look(cache)))


def act(wanted: dict[str, object]) -> dict[str, object]:
    """Pack or take over; return what changed."""
    archive, cache = str(wanted["archive"]), str(wanted["cache"])
    user = str(wanted["user"]) if wanted["user"] else None
    if wanted["state"] == "present":
        with open(archive, "rb") as source:
            added = compiled.unpack(source, cache, user)
        return {"changed": added > 0, "added": added}
    # Opened by us: the engine's user could not write here, and nobody else may read it.
    descriptor = os.open(archive, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w+b") as target:
        packed = compiled.pack(cache, target, user, int(str(wanted["limit_bytes"])))
    return {"changed": False, "packed": packed}


if __name__ == "__main__":
    main()
