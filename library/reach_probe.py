#!/usr/bin/python
"""Measure from a host to every peer that answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_probe
short_description: Measure from a host to every peer that answers
description:
  - Connects to every port of every peer at once, then measures the round trip, the difference of
    the clocks and the loss of small datagrams to each peer that proves the cluster's key.
  - Sends no more than a few Mbit/s, and changes nothing.
author: The vllm-ansible authors
options:
  peers:
    description: What C(reach_responder) returned on each peer, by the peer's name.
    type: dict
    required: true
  key_file:
    description: The secret file of the cluster that both ends prove to have.
    type: path
    required: true
  timeout_seconds:
    description: How long a connection may take. What does not connect is tried three times.
    type: float
    default: 3
"""

EXAMPLES = r"""
- name: Measure to every peer
  reach_probe:
    peers:
      node2: {address: 10.0.0.6, ports: [[8000, 8000], [20000, 20011]], answers: [41234]}
    key_file: /opt/vllm-ansible/demo/secrets/ray_token
"""

RETURN = r"""
peers:
  description:
    - By peer, C(blocked), ranges of ports by how they failed (refused, timed_out, unreachable,
      forbidden); and where the peer answers C(source), the address of this host that is used,
      C(round_trip_us), C(round_trip_best_us), C(clock_offset_seconds) (the peer's clock less this
      one's), C(clock_uncertainty_seconds), and C(loss), datagrams that were C(sent), C(arrived),
      C(returned), and that a busy kernel C(dropped_there) or C(dropped_here). C(silent) says why a
      peer that was tried does not answer.
  type: dict
  returned: success
seconds:
  description: How long it took.
  type: float
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.reach.probe import probe
from ansible.module_utils.vllm_ansible.node.reach.wire import key_from


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "peers": {"type": "dict", "required": True},
            # The name of a file, not a secret.
            "key_file": {"type": "path", "required": True, "no_log": False},
            "timeout_seconds": {"type": "float", "default": 3},
        },
        supports_check_mode=True,
    )
    started = time.monotonic()
    try:
        key = key_from(module.params["key_file"])
    except Failure as error:
        module.fail_json(msg=str(error), **error.details)
    found = probe(module.params["peers"], key, module.params["timeout_seconds"])
    seconds = round(time.monotonic() - started, 3)
    module.exit_json(changed=False, peers=found, seconds=seconds)


if __name__ == "__main__":
    main()
