#!/usr/bin/python
"""List instances that this cluster does not claim; the action plugin of this name does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rented_orphans
short_description: List instances that this cluster does not claim, and end those named
description:
  - Every instance of the account that is no machine of a slot of this cluster, with whose it is,
    its age if a tag has it, and its price.
  - Ends nothing but what is named, and of that only what the list shows.
author: The vllm-ansible authors
options:
  end:
    description: Ids of instances to end.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Look for instances that no cluster claims
  rented_orphans:
  run_once: true
  register: found
"""

RETURN = r"""
orphans:
  description: The instances, with price in US cents an hour.
  type: list
  elements: dict
  returned: success
lines:
  description: The same for people, with the regions in which nothing could be looked for.
  type: list
  elements: str
  returned: success
"""
