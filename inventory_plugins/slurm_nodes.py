"""The hosts of a cluster on Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_nodes
short_description: The nodes of a cluster's allocation, one host for each of slurm_nodes
description:
  - Reads the inventory's own C(group_vars/all) and what is given with C(-e), asks squeue for the
    job of C(cluster_name), and makes one host for each node.
  - Before the job runs every node is also a host, with what was asked for, so that layouts
    are planned before Slurm is asked. What reads the inventory alone, as the stage validate does,
    asks nothing, so that it works away from the cluster.
author: The vllm-ansible authors
options:
  plugin:
    description: Must be V(slurm_nodes).
    type: str
    required: true
    choices: [slurm_nodes]
"""

EXAMPLES = r"""
# inventories/slurm/slurm.yml
plugin: slurm_nodes
"""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.template import trust_as_template

from vllm_ansible.inventory.provider import refuse, touches_machines, variables
from vllm_ansible.inventory.site_host import unprivileged_run_dir
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.commands import Silent, Slurm
from vllm_ansible.slurm.inventory import hosts, shared
from vllm_ansible.slurm.job import Job, own
from vllm_ansible.slurm.settings import READ, settings


class InventoryModule(BaseInventoryPlugin):
    """One host for each node of the allocation."""

    NAME = "slurm_nodes"

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is meant for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("slurm.yml", "slurm.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        place = Path(path).parent / "group_vars"
        try:
            wanted = settings(variables(loader, self.templar, place, READ), f"{place}/all.yml")
            running, nodes = _running(Slurm(wanted)) if touches_machines() else (None, [])
        except PlanError as refused:
            refuse(refused.problems)
        except Silent as silence:
            fix = "`scontrol ping` asks slurmctld; run the same command again once it answers"
            refuse([Problem("Slurm does not answer", "an answer", str(silence), "squeue", fix)])
        for group in ("gpu", "head", "worker"):
            self.inventory.add_group(group)
        user = os.getuid()
        common = shared(wanted, running, unprivileged_run_dir(wanted.cluster, user), user)
        if not touches_machines():
            common["provision_unasked"] = "Slurm"
        for name, value in common.items():
            # Not of all hosts: an inventory may name others, such as this one.
            self.inventory.set_variable("gpu", name, _trusted(value))
        for host in hosts(wanted, running, nodes):
            for group in host.groups:
                self.inventory.add_host(host.name, group=group)
            for name, value in host.variables.items():
                self.inventory.set_variable(host.name, name, _trusted(value))


def _running(slurm: Slurm) -> tuple[Job | None, list[str]]:
    """Return the job that runs, if one does, and its nodes."""
    job, _ = own(slurm.jobs())
    running = job if job and job.runs else None
    return running, slurm.node_names(running.node_list) if running else []


def _trusted(value: Any) -> Any:
    """Return a text as one of an inventory file: ours, or of the site's own Slurm."""
    return trust_as_template(value) if isinstance(value, str) else value
