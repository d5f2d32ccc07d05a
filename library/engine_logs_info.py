#!/usr/bin/python
"""Collect the log tails of an engine's processes on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_logs_info
short_description: Collect the log tails, and if asked the stacks, of an engine's processes
description:
  - Reads the logs of the present start only. Changes nothing; py-spy stops a process for
    milliseconds while it reads its stack.
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
  engines:
    description: Names of the engines.
    type: list
    elements: str
    required: true
  ray_dirs:
    description: Ray's temporary directory of each engine, by name.
    type: dict
    default: {}
  py_spy:
    description: Path of py-spy. Empty takes no stacks.
    type: str
    default: ""
  max_bytes:
    description: At most this much of each log, from its end.
    type: int
    default: 65536
"""

EXAMPLES = r"""
- name: Collect what each host knows
  engine_logs_info:
    cluster: r1
    cluster_dir: /opt/vllm-ansible/r1
    engines: [chat]
"""

RETURN = r"""
tails:
  description:
    - Text by process name, of all engines asked for. C(ENGINE-stopped) names processes that a
      signal or a debugger has stopped.
  type: dict
  returned: success
of_engine:
  description: By engine, the names of its logs among C(tails).
  type: dict
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import evidence
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks
from ansible.module_utils.vllm_ansible.node.watchdog.processes import stopped
from ansible.module_utils.vllm_ansible.node.watchdog.snapshot import Snapshots


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "engines": {"type": "list", "elements": "str", "required": True},
            "ray_dirs": {"type": "dict", "default": {}},
            "py_spy": {"type": "str", "default": ""},
            "max_bytes": {"type": "int", "default": 65536},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        records = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    found: dict[str, str] = {}
    of_engine: dict[str, list[str]] = {}
    for engine in wanted["engines"]:
        ray_dir = wanted["ray_dirs"].get(engine, "")
        own = evidence.tails(records, engine, ray_dir, wanted["max_bytes"])
        mine = [name for name, one in records.items() if one["engine"] == engine]
        if held := stopped(Snapshots(wanted["cluster_dir"]).take(time.monotonic()), mine):
            own[f"{engine}-stopped"] = "".join(f"{one}\n" for one in held)
        if wanted["py_spy"]:
            own.update(evidence.stacks(records, engine, wanted["py_spy"]))
        found.update(own)
        of_engine[engine] = sorted(own)
    module.exit_json(changed=False, tails=found, of_engine=of_engine)


if __name__ == "__main__":
    main()
