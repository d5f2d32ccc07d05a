#!/usr/bin/python
"""Decide what is done about a host's driver; done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_plan
short_description: Decide what is done about a host's driver
description:
  - Compares what M(nvidia_driver_info) saw with what a site wants, on the controller. Refuses,
    before anything is touched, what must not be done to that host.
author: The vllm-ansible authors
options:
  host:
    description: Facts of the host, as role C(site) keeps them.
    type: dict
    required: true
  look:
    description: What M(nvidia_driver_info) returned as C(driver).
    type: dict
    required: true
  mode:
    description: Whether differences will be repaired.
    type: str
    choices: [manage, check]
    required: true
  branch:
    description: The branch that is installed where there is none, or one older than O(oldest).
    type: int
    required: true
  oldest:
    description: The branch that the driver must have at least; V(0) is O(branch).
    type: int
    default: 0
  packages:
    description: Packages that bring the driver.
    type: list
    elements: str
    required: true
  dcgm:
    description: Whether the monitor DCGM belongs to a managed driver.
    type: bool
    default: true
  repository:
    description: Address of the repository; empty for the vendor's.
    type: str
    default: ""
  key_url:
    description: Address of its key; empty for the vendor's, next to the packages.
    type: str
    default: ""
  key_fingerprint:
    description: Fingerprint of that key; empty for the vendor's.
    type: str
    default: ""
  reboot:
    description: Whether this run may reboot the host.
    type: bool
    default: true
  allow_disruption:
    description: Whether processes that hold a device may lose it.
    type: bool
    default: false
  script:
    description: Where the administrator's script will be written on the controller.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Decide what is done about the driver
  nvidia_driver_plan:
    host: "{{ site_host }}"
    look: "{{ __nvidia_driver_look.driver }}"
    mode: check
    branch: 580
    packages: [nvidia-open]
  register: __nvidia_driver_plan
"""

RETURN = r"""
differences:
  description: Identifiers of what differs, in the order of repair.
  type: list
  elements: str
  returned: success
steps:
  description:
    - What repairs it, with C(repository), C(repair), C(pin), C(install), C(reinstall), C(hold),
      C(enable), C(modules), C(start) and C(reboot); C(now) says whether any is due before it.
  type: dict
  returned: success
measurements:
  description: One failed measurement for each difference, for a gate.
  type: list
  elements: dict
  returned: success
repository:
  description: C(url), C(path), C(content), C(key_url), C(key_path), C(fingerprint); if managed.
  type: dict
  returned: success
script:
  description: A script that does all of it, for an administrator.
  type: str
  returned: success
commands:
  description: The commands a person would type.
  type: list
  elements: str
  returned: success
summary:
  description: One line about the driver.
  type: str
  returned: success
values:
  description: The figures behind it.
  type: dict
  returned: success
"""
