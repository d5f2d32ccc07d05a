#!/usr/bin/python
"""Find by a mark in a directory which hosts see the same one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: directory_mark
short_description: Find by a mark in a directory which hosts see the same one
description:
  - Reads the mark of a directory, and leaves one where there is none. Hosts that read the same mark
    share the directory, whatever it is mounted from.
  - In check mode a directory without a mark keeps none.
author: The vllm-ansible authors
options:
  path:
    description: The directory. It is made where it is missing.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: See which hosts share a directory of models
  directory_mark:
    path: /srv/models
  register: seen
"""

RETURN = r"""
mark:
  description: The mark; empty in check mode where there is none.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.cluster import directory_mark
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.weights.store.disk_failure import disk_failure


def main() -> None:
    """Read the mark, or make it."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True
    )
    path = module.params["path"]
    try:
        found = directory_mark.read(path)
        mark = found or ("" if module.check_mode else directory_mark.make(path))
    except OSError as error:
        failure: Failure = disk_failure(error, path)
        module.fail_json(msg=str(failure), **failure.details)
    module.exit_json(changed=not found, mark=mark)


if __name__ == "__main__":
    main()
