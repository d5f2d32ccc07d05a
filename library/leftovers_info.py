#!/usr/bin/python
"""Look for processes that still run from a cluster's directory."""

from __future__ import annotations

DOCUMENTATION = r"""
module: leftovers_info
short_description: Look for processes that still run from a cluster's directory
description:
  - Finds every process whose executable, command or working directory lies in the cluster's
    directory, whoever started it. Changes nothing, and counts neither itself nor its parents.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Look for what is left
  leftovers_info:
    cluster_dir: /opt/vllm-ansible/r1
"""

RETURN = r"""
processes:
  description: C(pid) and C(command) of each.
  type: list
  elements: dict
  returned: success
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import launcher


def own_line(pid: int) -> set[int]:
    """Return a process and its ancestors."""
    found = set()
    while pid:
        found.add(pid)
        stat = launcher.stat_of(pid)
        pid = stat.parent if stat else 0
    return found


def places(pid: int) -> str:
    """Return command, executable and working directory of a process; empty when it is gone."""
    try:
        process = Path(f"/proc/{pid}")
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    try:
        return f"{command}\n{os.readlink(process / 'exe')}\n{os.readlink(process / 'cwd')}"
    except OSError:
        # Somebody else's, to whoever is not root.
        return command


def leftovers(directory: str) -> list[dict[str, Any]]:
    """Return the processes that run from a directory, or in it."""
    inside = directory.rstrip("/") + "/"
    mine = own_line(os.getpid())
    seen = {pid: places(pid) for pid in launcher.process_table() if pid not in mine}
    return [
        {"pid": pid, "command": text.partition("\n")[0].strip()[:200]}
        for pid, text in sorted(seen.items())
        if inside in text or text.endswith("\n" + directory.rstrip("/"))
    ]


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={"cluster_dir": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, processes=leftovers(module.params["cluster_dir"]))


if __name__ == "__main__":
    main()
