#!/usr/bin/python
"""Look at all recorded processes of a cluster on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: processes_info
short_description: Look at all recorded processes of a cluster on a host
description:
  - One look that costs milliseconds, and changes nothing.
  - A record that is empty, as a power failure may leave it, counts as none, with a warning.
author: The vllm-ansible authors
options:
  cluster:
    description: The cluster. Units of systemd carry its name.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on the host.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Look at the processes
  processes_info:
    cluster: demo
    cluster_dir: /opt/vllm-ansible/demo
  register: __status_processes
"""

RETURN = r"""
processes:
  description:
    - By name, the engine, running, why (not), pid, digest, instance, started_at, exit_status,
      ended_at (where its launcher saw it), leftovers, command, log, log_offset and log_size of
      each process.
  type: dict
  returned: success
ladder:
  description:
    - By engine, what its restarts have changed, and whether it starts so now (C(current)). Empty
      but on the head.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError, empty_records
from ansible.module_utils.vllm_ansible.node.process.processes import looks
from ansible.module_utils.vllm_ansible.node.watchdog import ladder


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        found = looks(module.params["cluster_dir"], module.params["cluster"], module.run_command)
        empty = empty_records(module.params["cluster_dir"])
        kept = ladder.shown(module.params["cluster_dir"])
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    for path in empty:
        module.warn(f"{path} is empty, as a power failure leaves it: it counts as no record")
    module.exit_json(changed=False, processes=found, ladder=kept)


if __name__ == "__main__":
    main()
