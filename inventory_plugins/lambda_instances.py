"""The hosts of a cluster at Lambda."""

from __future__ import annotations

DOCUMENTATION = r"""
name: lambda_instances
short_description: The machines of a cluster at Lambda, one host for each slot
description:
  - Reads the inventory's own C(group_vars/all) and what is given with C(-e), lists the
    instances that carry the tags of C(cluster_name), and makes one host for each of C(node_count)
    and C(spare_count) slots.
  - A slot without a machine is a host all the same, with what its type of instance is known to
    have, so that layouts are planned before anything is rented.
  - The list is kept for a minute in C(state/<cluster_name>/), without any secret.
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
from ansible.template import trust_as_template

from vllm_ansible.inventory.provider import refuse, refuse_told, variables
from vllm_ansible.planner.problem import PlanError
from vllm_ansible.provision.lambda_api import ApiError, Unreachable
from vllm_ansible.provision.lambda_cluster import LambdaCluster
from vllm_ansible.provision.lambda_inventory import hosts, shared
from vllm_ansible.provision.lambda_settings import READ, settings
from vllm_ansible.provision.lambda_words import refusal, silence

REPOSITORY = Path(__file__).resolve().parents[1]


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
        place = Path(path).parent / "group_vars"
        try:
            wanted = settings(variables(loader, self.templar, place, READ), f"{place}/all.yml")
            cluster = LambdaCluster(wanted, REPOSITORY / "state")
            machines = cluster.machines(cached=True)
        except PlanError as refused:
            refuse(refused.problems)
        except ApiError as refused:
            refuse_told([refusal(refused)])
        except Unreachable as failure:
            refuse_told([silence(failure)])
        for group in ("gpu", "head", "worker", "spare"):
            self.inventory.add_group(group)
        for name, value in shared(wanted, machines, str(cluster.known_hosts)).items():
            # Not of all hosts: an inventory may name others, such as this one.
            for group in ("gpu", "spare"):
                self.inventory.set_variable(group, name, _trusted(value))
        for host in hosts(wanted, machines):
            for group in host.groups:
                self.inventory.add_host(host.name, group=group)
            for name, value in host.variables.items():
                known = name == "ansible_host"
                self.inventory.set_variable(host.name, name, _trusted(value) if known else value)


def _trusted(value: Any) -> Any:
    """Return a text of our own, or an address, as one of an inventory file.

    What Lambda says may never be evaluated, and `ansible-inventory` marks it as such for its
    readers, of whom not all understand the mark.
    """
    return trust_as_template(value) if isinstance(value, str) else value
