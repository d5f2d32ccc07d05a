"""A cluster on machines that an emulated EC2 rents out: hosts of a lab, real over SSH."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import imds
from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_account import Account
from tests.emulators.ec2_parts import AMI, ZONES, environment
from tests.emulators.lab_machines import LabMachines
from vllm_ansible.lab import Lab

from .clone import Clone
from .rented_hosts import RentedHosts, hosts_of
from .two_hosts import PYTHON

KIND, (FULL, ZONE, *_) = "p5.48xlarge", ZONES
# EC2 tells no price, so the inventory does: of one machine, in dollars an hour.
USD = 50
METADATA, NOTICES = "169.254.169.254", "/run/emulated-imds"


@dataclass
class RentedAws(RentedHosts):
    """The same, at AWS."""

    plugin = ("aws.yml", "aws_instances")

    cloud: Ec2

    def python(self, host: str, program: str, *arguments: str) -> Any:
        """Return what a program prints as JSON on a host of the lab."""
        ran = self.lab.run(host, [PYTHON, "-c", program, *arguments], timeout=300)
        return json.loads(ran.stdout)

    @property
    def plan(self) -> dict[str, Any]:
        (first, *_) = self.machines.rented.values()
        found = json.loads(self.lab.run(first, ["cat", "/opt/vllm-ansible/r1/plan.json"]).stdout)
        return {engine["name"]: engine for engine in found["engines"]}

    @property
    def network(self) -> str:
        """The network of the addresses that EC2 names."""
        return self.lab.record.networks[0].role

    def serve_metadata(self, host: str) -> None:
        """Give a host the metadata service that every instance has, at its own address."""
        self.lab.run(host, ["mkdir", "-p", f"{NOTICES}/spot"])
        self.lab.run(host, ["ip", "address", "replace", f"{METADATA}/32", "dev", "lo"])
        program = inspect.getsource(imds)
        unit = ["systemd-run", "--unit=emulated-imds", "--collect"]
        self.lab.run(host, [*unit, PYTHON, "-c", program, NOTICES, METADATA, "80"])

    def interrupt(self, identity: str) -> None:
        """Announce that a spot machine ends in two minutes; it is listed until `end`.

        On a busy machine two minutes may be over before a command has looked at it.
        """
        self.cloud.account.interrupt(identity)
        interrupted = self.cloud.account.faults.interrupted
        until = datetime.fromtimestamp(interrupted[identity], UTC)
        interrupted[identity] += 3600
        text = json.dumps({"action": "terminate", "time": until.strftime("%Y-%m-%dT%H:%M:%SZ")})
        write = ["sh", "-c", f"printf %s '{text}' > {NOTICES}/spot/instance-action"]
        self.lab.run(self.machines.rented[identity], write)

    def end(self, identity: str) -> None:
        """Carry an interruption out."""
        self.cloud.account.faults.interrupted[identity] = time.time()


@contextmanager
def rented_aws(directory: Path, hosts: int) -> Iterator[RentedAws]:
    """Make a lab, an EC2 that rents its hosts out, and a clone; nothing of them stays behind."""
    with Lab.create(hosts, "rented-aws-test", root=directory / "lab") as lab:
        machines = LabMachines(lab)
        # As the catalogue has it; the first zone had the last one a moment ago.
        account = Account({(KIND, FULL): 0, (KIND, ZONE): hosts}, time.time, machines)
        faults = account.faults
        faults.boot_seconds = faults.terminating_seconds = faults.late_seconds = 2
        clone = Clone(directory / "clone")
        variables = {
            "cluster_name": "r1",
            "aws_region": "us-east-2",
            "aws_zones": [FULL, ZONE],
            "aws_instance_types": [KIND],
            "aws_ami": AMI,
            "aws_market": "spot",
            "aws_ssh_public_key_file": str(lab.paths.key.with_suffix(".pub")),
            "aws_ssh_from": ["198.51.100.7/32"],
            "aws_usd_per_hour": {KIND: USD},
            "node_count": 2,
            "max_usd_per_hour": 2 * USD,
            **hosts_of(lab),
        }
        with Ec2(account) as cloud, pytest.MonkeyPatch.context() as patched:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patched.delenv(name)
            for name, value in environment(cloud.url).items():
                patched.setenv(name, value)
            inventory = clone.directory / "inventories" / "aws-lab"
            yield RentedAws(lab, machines, clone, inventory, variables, cloud)
            assert cloud.misfits == []
