#!/usr/bin/python
"""Decide who needs an image's tar; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_spread
short_description: Decide which hosts need the tar of the engine's image, and from whom they get it
description:
  - Reads, on the controller, what M(engine_image) saw on each host. A host that has the image, or
    the tar under its path, needs nothing.
  - Before anything is copied it compares the room that M(engine_image_room_info) saw and the
    checksum of the file that the controller is to copy.
  - Run it once.
author: The vllm-ansible authors
options:
  file:
    description: Path of the tar, on hosts and on the controller.
    type: path
    required: true
  sha256:
    description: Its checksum.
    type: str
    required: true
  slug:
    description: Name of the directory in which hosts keep it.
    type: str
    required: true
  looks:
    description: Name of the variable in which every host has what M(engine_image) saw.
    type: str
    required: true
  rooms:
    description: Name of the variable in which every host has what M(engine_image_room_info) saw.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: See who needs the tar
  image_spread:
    file: /data/engine.tar
    sha256: 5f3c
    slug: image-5f3c
    looks: __environment_look
    rooms: __environment_room
  run_once: true
"""

RETURN = r"""
entry:
  description: The host that has it, or gets it from the controller. Empty when no host needs it.
  type: str
  returned: success
copied:
  description: Whether the controller copies it there.
  type: bool
  returned: success
upstream:
  description: By host that takes part, whom it asks.
  type: dict
  returned: success
manifests:
  description: The tar, as M(weights_relay) passes it on.
  type: dict
  returned: success
"""
