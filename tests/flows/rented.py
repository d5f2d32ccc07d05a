"""A cluster on machines that an emulated Lambda rents out: hosts of a lab, real over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.emulators.lab_machines import LabMachines
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.emulators.standin import environment
from vllm_ansible.lab import Lab
from vllm_ansible.lab.inventory import inventory_file

from .clone import Clone, Ran, Running

KEY = "secret_of-ann.0123456789"
KIND, REGION = "gpu_1x_gh200", "us-east-3"


@dataclass
class Rented:
    """The cloud with its machines, and the clone that rents them."""

    lab: Lab
    cloud: Cloud
    machines: LabMachines
    clone: Clone
    inventory: Path
    variables: dict[str, Any]

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        self.write()
        return self.clone.start(self.inventory, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.start(*arguments, playbook=playbook).result()

    def write(self) -> None:
        """Write the inventory as a user has it: a line for the plugin, and variables."""
        (self.inventory / "group_vars").mkdir(parents=True, exist_ok=True)
        (self.inventory / "lambda.yml").write_text("plugin: lambda_instances\n")
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))

    @property
    def paid_for(self) -> list[str]:
        """Names of the machines that cost money."""
        listed = self.cloud.account.list_instances()
        return sorted(one["name"] for one in listed if one["status"] != "terminating")


@contextmanager
def rented(directory: Path, hosts: int, engine: str = "vllm") -> Iterator[Rented]:
    """Make a lab, a cloud that rents its hosts out, and a clone; nothing of them stays behind.

    engine: `vllm`, or `stand-in`, which serves in its place.
    """
    with Lab.create(hosts, "rented-test", root=directory / "lab") as lab:
        machines = LabMachines(lab)
        account = Account([Type(KIND, "GH200 (96 GB)", 149, left={REGION: hosts})], machines)
        account.add_ssh_key("mine", lab.paths.key.with_suffix(".pub").read_text())
        account.faults.boot_seconds = account.faults.terminating_seconds = 2
        with Cloud(account, KEY, request_seconds=0.1, launch_seconds=0.2) as cloud:
            key = directory / "lambda-key"
            key.write_text(KEY)
            key.chmod(0o600)
            clone = Clone(directory / "clone")
            variables = {
                "cluster_name": "rented",
                "lambda_api_key_file": str(key),
                "lambda_ssh_key_name": "mine",
                "lambda_filesystem": "shared",
                "lambda_instance_types": [KIND],
                "lambda_regions": [REGION],
                "lambda_endpoint": cloud.url,
                "lambda_request_seconds": 0.1,
                "lambda_launch_seconds": 0.2,
                "node_count": 2,
                "spare_count": 1,
                "max_usd_per_hour": 40,
                # What hosts of a lab are and real ones are not.
                "ansible_user": "root",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_private_key_file": str(lab.paths.key),
                "sources_environment": yaml.safe_load(inventory_file(lab.paths).read_text())["all"][
                    "vars"
                ]["sources_environment"],
                "accelerator": "cpu",
                "accelerator_count": 1,
                "accelerator_model": "",
                "engines": [
                    {
                        "name": "chat",
                        "model": "package:smollm2-135m-instruct",
                        "nodes": 2,
                        "vllm_args": {
                            "enforce_eager": True,
                            "max_model_len": 2048,
                            "dtype": "float32",
                        },
                        "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
                    }
                ],
            }
            if engine == "stand-in":
                variables |= environment(directory / "engine")
            inventory = clone.directory / "inventories" / "rented"
            yield Rented(lab, cloud, machines, clone, inventory, variables)
            assert cloud.misfits == []
