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
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import constants
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.template import trust_as_template
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from vllm_ansible.planner.problem import PlanError
from vllm_ansible.provision.lambda_api import ApiError, Unreachable
from vllm_ansible.provision.lambda_cluster import LambdaCluster
from vllm_ansible.provision.lambda_inventory import hosts, shared
from vllm_ansible.provision.lambda_settings import READ, settings
from vllm_ansible.provision.lambda_words import refusal, silence
from vllm_ansible.record import console

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
            wanted = settings(self._variables(place), f"{place}/all.yml")
            cluster = LambdaCluster(wanted, REPOSITORY / "state")
            machines = cluster.machines(cached=True)
        except PlanError as refused:
            _refuse([{"msg": one.message, **asdict(one)} for one in refused.problems])
        except ApiError as refused:
            _refuse([refusal(refused)])
        except Unreachable as failure:
            _refuse([silence(failure)])
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

    def _variables(self, place: Path) -> dict[str, Any]:
        """Return the variables of the inventory's group all, evaluated."""
        given: dict[str, Any] = {}
        # One file, or a directory of them: wherever Ansible reads them too.
        for file in self.loader.find_vars_files(str(place), "all"):
            path = file.decode() if isinstance(file, bytes) else str(file)
            given |= self.loader.load_from_file(path, trusted_as_template=True) or {}
        given |= load_extra_vars(self.loader)
        self.templar.available_variables = given
        return {name: self.templar.template(value) for name, value in given.items() if name in READ}


def _trusted(value: Any) -> Any:
    """Return a text of our own, or an address, as one of an inventory file.

    What Lambda says may never be evaluated, and `ansible-inventory` marks it as such for its
    readers, of whom not all understand the mark.
    """
    return trust_as_template(value) if isinstance(value, str) else value


def _refuse(problems: list[dict[str, Any]]) -> NoReturn:
    """Say what is wrong, and end: an inventory that cannot be read is no empty one.

    An error of Ansible's own would be a warning among those of every other plugin that is asked
    whether it can read the file.
    """
    for problem in problems:
        lines = console.stage_line("inventory", problem["msg"])
        for name in ("expected", "found", "where", "fix"):
            if problem.get(name):
                lines += console.labelled(name, str(problem[name]), 3)
        for line in lines:
            Display().display(line, color=constants.COLOR_ERROR, stderr=True)
    raise SystemExit(1)
