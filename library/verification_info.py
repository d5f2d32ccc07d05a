#!/usr/bin/python
"""Read the kept evidence of the stage verify."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verification_info
short_description: Read the kept evidence of the stage verify
description:
  - Reads what the last verification found, from the cluster's head. Changes nothing.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on the head.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Read the evidence that is kept
  verification_info:
    cluster_dir: /opt/vllm-ansible/r1
  register: __verification_look
"""

RETURN = r"""
kept:
  description:
    - C(accepted), C(fingerprint), C(measured_at), C(rows), C(summaries), C(links) and
      C(baseline); empty where nothing was kept or it cannot be read.
  type: dict
  returned: success
"""

import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def read(path: str) -> Any:
    """Return the evidence; what cannot be read proves nothing, and is measured again."""
    try:
        with open(path, encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError):
        return {}


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={"cluster_dir": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    path = os.path.join(module.params["cluster_dir"], "evidence", "verify.json")
    module.exit_json(changed=False, kept=read(path))


if __name__ == "__main__":
    main()
