"""A cluster on machines that an emulated Lambda rents out: hosts of a lab, real over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.lab_machines import LabMachines
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.emulators.standin import MODEL, environment
from vllm_ansible.lab import Lab

from .clone import Clone
from .rented_hosts import RentedHosts, hosts_of

KEY = "secret_of-ann.0123456789"
KIND, REGION = "gpu_1x_gh200", "us-east-3"


@dataclass
class Rented(RentedHosts):
    """The same, at Lambda."""

    plugin = ("lambda.yml", "lambda_instances")

    cloud: Cloud

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
                **hosts_of(lab),
            }
            if engine == "stand-in":
                variables |= hosts_of(lab, MODEL) | environment(directory / "engine")
            inventory = clone.directory / "inventories" / "rented"
            yield Rented(lab, machines, clone, inventory, variables, cloud)
            assert cloud.misfits == []
