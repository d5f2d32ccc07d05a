"""The hosts of a cluster at RunPod."""

from __future__ import annotations

DOCUMENTATION = r"""
name: runpod_pods
short_description: The pods of a cluster at RunPod, one host for each slot
description:
  - Reads the inventory's own C(group_vars/all) and what is given with C(-e), lists the account's
    clusters and pods, and makes one host for each of C(node_count) slots. A slot is a pod's rank in
    its cluster, which is found by its name.
  - A slot without a pod is a host all the same, with what its type is known to have, so that
    layouts are planned before anything is rented. What reads the inventory alone, as the stage
    validate does, asks nobody, so that it works without a network.
  - Every host is reached as root at the address and port that RunPod publishes now; the port may
    change. Processes are kept by supervisord, and ranks talk over C(ens1).
  - The list is kept for a minute in C(state/<cluster_name>/), without any secret.
  - Where pods are paid for under C(max_hours) or C(max_cost) and no process watches these, it
    says so before anything else and starts one.
author: The vllm-ansible authors
options:
  plugin:
    description: Must be V(runpod_pods).
    type: str
    required: true
    choices: [runpod_pods]
"""

EXAMPLES = r"""
# inventories/runpod/runpod.yml
plugin: runpod_pods
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.inventory import BaseInventoryPlugin

from vllm_ansible.inventory.rented import fill


class InventoryModule(BaseInventoryPlugin):
    """One host for each slot of the cluster."""

    NAME = "runpod_pods"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is meant for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("runpod.yml", "runpod.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        fill(self, "runpod", loader, path, Path(__file__).resolve().parents[1] / "state")
