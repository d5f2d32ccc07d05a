#!/usr/bin/python
"""Start the coordinator of a measurement of collectives."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collective_check
short_description: Start the coordinator of a measurement of collectives
description:
  - Starts it detached, on one host. It waits for the ranks that M(collective_ranks) starts,
    measures collectives inside hosts and across them, then disjoint pairs round by round until
    what is slow is known or every pair was seen. C(background_wait) returns what it found.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
  hosts:
    description: How many ranks each host has, by its name; this host first.
    type: dict
    required: true
  address:
    description: Address of this host on the data plane.
    type: str
    required: true
  port:
    description: Port to wait for ranks at.
    type: int
    required: true
  store_port:
    description: Port of the ranks' rendezvous store, which the first rank opens.
    type: int
    required: true
  key_file:
    description: A secret that all hosts of the cluster have.
    type: path
    required: true
  join_seconds:
    description: How long to wait for all ranks.
    type: float
    default: 120
  size:
    description:
      - Bytes of a collective. 0 takes what the link carries in O(seconds), from 1 MiB to O(most).
    type: int
    default: 0
  seconds:
    description: How long one collective may take about; exchanges of pairs get half of it.
    type: float
    default: 0.3
  most:
    description: The most bytes of a collective or an exchange.
    type: int
    default: 1073741824
  iterations:
    description: Timed runs of each.
    type: int
    default: 3
  least_pair:
    description: GB/s that every pair of hosts must have in each direction; 0 where none is known.
    type: float
    default: 0
  user:
    description: User to run as, which needs root.
    type: str
attributes:
  check_mode:
    description: Nothing is started.
    support: full
"""

EXAMPLES = r"""
- name: Start the coordinator
  collective_check:
    cluster_dir: /opt/vllm-ansible/r1
    hosts: {gh-01: 1, gh-02: 1}
    address: 10.0.0.2
    port: 20012
    store_port: 20013
    key_file: /opt/vllm-ansible/r1/secrets/ray_token
"""

RETURN = r"""
task:
  description:
    - The background task. Its result has C(across) by operation and C(inside) by host and
      operation (C(bytes), C(seconds), C(algbw) and C(busbw) in GB/s of 1e9 bytes, C(wrong)
      elements), C(pairs) and, by host, C(cards) (C(gbs) in each direction, C(rails), C(latency)
      in seconds), the C(rounds) it took, the C(culprit), what part of TCP's segments each host
      sent again as C(retransmitted), NCCL's own words on its C(transport), what the first host says
      of its C(links), C(versions) and C(seconds).
  type: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.cluster.key import secret
from ansible.module_utils.vllm_ansible.node.collectives import links as verify_links
from ansible.module_utils.vllm_ansible.node.collectives.operations import Wishes
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError

TASK = "collective-check"


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "hosts": {"type": "dict", "required": True},
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            "store_port": {"type": "int", "required": True},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "required": True, "no_log": False},
            "join_seconds": {"type": "float", "default": 120.0},
            "size": {"type": "int", "default": 0},
            "seconds": {"type": "float", "default": 0.3},
            "most": {"type": "int", "default": 1073741824},
            "iterations": {"type": "int", "default": 3},
            "least_pair": {"type": "float", "default": 0.0},
            "user": {"type": "str"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if sum(map(int, wanted["hosts"].values())) < 2:
        module.fail_json(
            msg="one rank alone has no peer to measure against",
            expected="two ranks or more",
            found=wanted["hosts"],
            fix="measure over several hosts, or several accelerators of one",
        )
    try:
        secret(wanted["key_file"])
    except Failure as error:
        module.fail_json(msg=str(error), **error.details)
    if module.check_mode:
        module.exit_json(changed=False, task=TASK)
    wishes = Wishes(
        *(wanted[name] for name in ("size", "seconds", "most", "iterations", "least_pair"))
    )
    tasks_dir = os.path.join(wanted["cluster_dir"], "tasks")
    try:
        background.stop(tasks_dir, TASK)
        background.start(
            tasks_dir,
            TASK,
            lambda report: verify_links.check(
                {str(host): int(count) for host, count in wanted["hosts"].items()},
                (wanted["address"], wanted["port"]),
                wanted["store_port"],
                wanted["key_file"],
                wishes,
                wanted["join_seconds"],
                report,
            ),
            user=wanted["user"],
            again=True,
        )
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, task=TASK)


if __name__ == "__main__":
    main()
