#!/usr/bin/python
"""Measure what the NVIDIA accelerators of a host do."""

from __future__ import annotations

DOCUMENTATION = r"""
module: accelerator_probe
short_description: Measure what the NVIDIA accelerators of a host do
description:
  - Multiplies matrices, tests memory, and copies within a device, to and from the host and
    between devices; checks every result, and reads the state of links and memory and the
    errors in the kernel log. Needs the driver and nothing else.
  - Only measures, judges nothing and leaves nothing behind. In check mode it measures nothing.
author: The vllm-ansible authors
options:
  devices:
    description: Numbers of the devices to measure, as C(nvidia-smi) counts; all by default.
    type: list
    elements: int
    default: []
  seconds:
    description: How long to measure each device; all are measured at once.
    type: float
    default: 5
  bytes:
    description: How much memory of each device to test and to work in, as far as it is free.
    type: int
    default: 1073741824
"""

EXAMPLES = r"""
- name: Measure the accelerators
  accelerator_probe:
    seconds: 3
  register: __verify_accelerators
"""

RETURN = r"""
measured:
  description: Whether anything was measured; false in check mode.
  type: bool
  returned: success
probe:
  description:
    - C(devices) has for each device what it is, and under C(memory), C(matmul_fp32),
      C(matmul_bf16), C(bandwidth), C(host_link) and C(health) what was measured; C(error) and
      C(stage) say why and where a device failed. C(peers) has each ordered pair of devices,
      C(kernel_log) the errors that the driver wrote and what each asks for.
    - Rates are in GB/s of 1e9 bytes and in TFLOP/s.
  type: dict
  returned: when something was measured
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.accelerators.cuda_driver import CudaError
from ansible.module_utils.vllm_ansible.node.accelerators.cuda_probe import probe, refusal


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "int", "default": []},
            "seconds": {"type": "float", "default": 5.0},
            "bytes": {"type": "int", "default": 1073741824},
        },
        supports_check_mode=True,
    )
    wanted = module.params

    if refused := refusal(wanted["seconds"], wanted["bytes"]):
        module.fail_json(msg=f"Nothing was measured: {refused}")
    if module.check_mode:
        module.exit_json(changed=False, measured=False, msg="Check mode measures nothing")

    try:
        found = probe(wanted["devices"], wanted["seconds"], wanted["bytes"])
    except CudaError as error:
        module.fail_json(msg=f"Nothing was measured: {error}")
    module.exit_json(changed=False, measured=True, probe=found)


if __name__ == "__main__":
    main()
