#!/usr/bin/python
"""Read what the processes of a cluster have logged since the last look."""

from __future__ import annotations

DOCUMENTATION = r"""
module: log_lines_info
short_description: Read what the processes of a cluster have logged since the last look
description:
  - One look at the logs of all recorded processes of this host. Changes nothing.
author: The vllm-ansible authors
options:
  cluster:
    description: The cluster. Units of systemd carry its name.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
  engine:
    description: Only the processes of this engine. Empty is all.
    type: str
    default: ""
  offsets:
    description: Where to read on from, by process. Without one, the last O(lines) are read.
    type: dict
    default: {}
  lines:
    description: How many lines of a log that is read for the first time.
    type: int
    default: 50
  max_bytes:
    description: At most this much of each log.
    type: int
    default: 262144
"""

EXAMPLES = r"""
- name: Read the newest lines
  log_lines_info:
    cluster: r1
    cluster_dir: /opt/vllm-ansible/r1
"""

RETURN = r"""
logs:
  description: C(path), C(lines) and C(offset) by process.
  type: dict
  returned: success
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.log import lines as split
from ansible.module_utils.vllm_ansible.node.log_file import end_of
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks


def read(path: str, offset: int | None, lines: int, most: int) -> dict[str, Any]:
    """Return the lines of a log from an offset on, or its last ones, up to the last whole line."""
    data, start = end_of(path, offset or 0, most)
    whole, separator, _ = data.rpartition(b"\n")
    found = split((whole + separator).decode(errors="replace"))
    return {
        "path": path,
        "lines": found[-lines:] if offset is None else found,
        "offset": start + len(whole) + len(separator),
    }


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "engine": {"type": "str", "default": ""},
            "offsets": {"type": "dict", "default": {}},
            "lines": {"type": "int", "default": 50},
            "max_bytes": {"type": "int", "default": 262144},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        records = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    logs = {
        name: read(record["log"], wanted["offsets"].get(name), wanted["lines"], wanted["max_bytes"])
        for name, record in sorted(records.items())
        if wanted["engine"] in ("", record["engine"])
    }
    module.exit_json(changed=False, logs=logs)


if __name__ == "__main__":
    main()
