"""The lab's inventory before there is a lab, or where somebody else has made it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lab_hosts
short_description: Say how to make the lab where it has no hosts yet
description:
  - Adds nothing. C(hosts.yml) beside it, which C(make lab) writes, holds the hosts; where it is
    missing, or may not be read by who runs the playbook, the run ends with what to do.
author: The vllm-ansible authors
options:
  plugin:
    description: Must be V(lab_hosts).
    type: str
    required: true
    choices: [lab_hosts]
"""

EXAMPLES = r"""
# inventories/lab/check.yml, which is read before hosts.yml
plugin: lab_hosts
"""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.inventory import BaseInventoryPlugin

from vllm_ansible.inventory.provider import refuse
from vllm_ansible.problem import Problem


class InventoryModule(BaseInventoryPlugin):
    """Refuse what the yaml plugin would call a source that cannot be parsed."""

    NAME = "lab_hosts"

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Look for the file that holds the hosts."""
        super().parse(inventory, loader, path, cache)
        hosts = Path(path).with_name("hosts.yml")
        if not hosts.exists():
            fix = "run `sudo make lab`, which makes three hosts; docs/lab.md says what it needs"
            refuse([Problem("the lab has no hosts yet", str(hosts), "no such file", path, fix)])
        if not os.access(hosts, os.R_OK):
            who = f"a file of user {hosts.stat().st_uid}, and this is user {os.getuid()}"
            fix = "run `sudo make lab` again from this login, which then owns it"
            refuse([Problem("the lab's hosts cannot be read", str(hosts), who, path, fix)])
