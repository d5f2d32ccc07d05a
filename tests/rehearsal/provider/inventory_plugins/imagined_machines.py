"""Hosts of a cloud that nobody runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin

from vllm_ansible.inventory.rented import fill

DOCUMENTATION = r"""
name: imagined_machines
short_description: Hosts of a cloud that nobody runs
description: One host for each slot.
author: The vllm-ansible authors
options:
  plugin:
    description: Must be V(imagined_machines).
    type: str
    required: true
    choices: [imagined_machines]
"""


class InventoryModule(BaseInventoryPlugin):
    """One host for each slot of the cluster."""

    NAME = "imagined_machines"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is meant for this plugin."""
        return bool(super().verify_file(path)) and path.endswith("imagined.yml")

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        fill(self, "imagined", loader, path, Path(__file__).resolve().parents[1] / "state")
