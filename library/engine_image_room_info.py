#!/usr/bin/python
"""See what room a host has for the tar of the engine's image."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_room_info
short_description: See what room a host has for the tar of the engine's image
description:
  - Looks at the file systems that the tar passes through, before it travels; M(image_spread)
    compares them with what is needed.
  - Fails where the program that runs containers does not work. Changes nothing.
author: The vllm-ansible authors
options:
  images_dir:
    description: Directory in which tars are kept.
    type: path
    required: true
  slug:
    description: Name of the tar's directory in it.
    type: str
    required: true
  remote_tmp:
    description: Where Ansible puts files that it copies, before it moves them to their place.
    type: str
    default: ~/.ansible/tmp
  tool:
    description: The program that runs containers; V(auto) takes podman, else docker.
    type: str
    choices: [auto, docker, podman]
    default: auto
  environment:
    description: Environment of that program.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Look at the room for the tar
  engine_image_room_info:
    images_dir: /opt/vllm-ansible/r1/images
    slug: image-5f3c
  register: __environment_room
"""

RETURN = r"""
tar:
  description: C(path), C(device) and C(free_bytes) of O(images_dir), and C(there_bytes) of the tar.
  type: dict
  returned: success
received:
  description: The same of O(remote_tmp), without C(there_bytes).
  type: dict
  returned: success
storage:
  description: The same of where images are kept.
  type: dict
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.image import room, tool


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "images_dir": {"type": "path", "required": True},
            "slug": {"type": "str", "required": True},
            "remote_tmp": {"type": "str", "default": "~/.ansible/tmp"},
            "tool": {"choices": ["auto", "docker", "podman"], "default": "auto"},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted: dict[str, Any] = module.params
    sources = {str(name): str(value) for name, value in wanted["environment"].items()}
    try:
        storage = tool.find(wanted["tool"], {**os.environ, **sources}).storage()
    except Failure as error:
        module.fail_json(msg=str(error), **error.details)
    found = room.look(wanted["images_dir"], wanted["slug"], wanted["remote_tmp"], storage)
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
