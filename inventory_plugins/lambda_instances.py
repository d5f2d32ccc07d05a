"""The hosts of a cluster at Lambda."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lambda_instances
short_description: The machines of a cluster at Lambda, one host for each slot
description:
  - Reads the inventory's own C(group_vars/all) and what is given with C(-e), lists the
    instances that carry the tags of C(cluster_name), and makes one host for each of C(node_count)
    and C(spare_count) slots.
  - A slot without a machine is also a host, with what its type of instance is known to
    have, so that layouts are planned before anything is rented. What reads the inventory alone, as
    the stage validate does, asks no API, so that it works without a network.
  - The list is kept for a minute in C(state/<cluster_name>/), without any secret.
  - Where machines are paid for under C(max_hours) or C(max_cost) and no process watches these, it
    says so before anything else and starts one.
author: The vllm-ansible authors
options:
  plugin:
    description: Must be V(lambda_instances).
    type: str
    required: true
    choices: [lambda_instances]
"""

EXAMPLES = r"""
# inventories/lambda/lambda.yml
plugin: lambda_instances
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.inventory import BaseInventoryPlugin

from vllm_ansible.inventory.rented import fill


class InventoryModule(BaseInventoryPlugin):
    """One host for each slot of the cluster."""

    NAME = "lambda_instances"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is meant for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("lambda.yml", "lambda.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        fill(self, "lambda", loader, path, Path(__file__).resolve().parents[1] / "state")
