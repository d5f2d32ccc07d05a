"""A cluster's world at AWS: an emulated EC2, a controller, and a time that passes in waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_parts import AMI
from vllm_ansible.provision.aws_api import AwsApi, named
from vllm_ansible.provision.aws_fleet import AwsFleet
from vllm_ansible.provision.aws_machines import CLUSTER, instances
from vllm_ansible.provision.aws_settings import Settings
from vllm_ansible.provision.aws_surroundings import Surroundings
from vllm_ansible.provision.convergence import Outcome, converge
from vllm_ansible.provision.fleet import Wish

P5, B300, SMALL = "p5.48xlarge", "p6-b300.48xlarge", "g6e.xlarge"
A, B = "us-east-2a", "us-east-2b"


class AwsWorld:
    """A cloud, a controller, and a time that passes while one waits."""

    def __init__(self, cloud: Ec2, directory: Path) -> None:
        self.cloud, self.directory = cloud, directory
        self.now = 1_000_000.0
        self.told: list[str] = []
        self.rejected: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self.api = AwsApi("us-east-2", sleep=self.sleep)

    def wanted(self) -> Settings:
        key = self.directory / "key.pub"
        key.write_text("ssh-ed25519 AAAA ann@here\n")
        more: dict[str, Any] = {
            "region": "us-east-2",
            "zones": (A, B),
            "types": (P5,),
            "image": AMI,
            "count": 2,
            "public_key_file": key,
            "ssh_from": ("198.51.100.7",),
            "owner": "ann@here",
        }
        return Settings("r1", **{**more, **self.settings})

    def surroundings(self) -> Surroundings:
        wanted = self.wanted()
        return Surroundings(self.api, wanted, lambda: "5ta7e", lambda: self.now, self.sleep)

    def fleet(self) -> AwsFleet:
        def look() -> list[dict[str, Any]]:
            return instances(self.api, [named(f"tag:{CLUSTER}", "r1")])

        note = self.directory / "aws-launch.json"
        surroundings = self.surroundings()
        return AwsFleet(self.api, self.wanted(), surroundings, note, look, lambda: self.now)

    def converge(
        self, spent: Callable[[], str] = str, fleet: AwsFleet | None = None, **more: Any
    ) -> Outcome:
        fleet = fleet or self.fleet()
        wanted = self.wanted()
        wish = Wish(wanted.count, wanted.spares, wanted.max_cents_per_hour, together=True)
        return converge(
            *(fleet, wish, self.rejected, more.pop("limit", 3600.0), self.told.append),
            now=lambda: self.now,
            sleep=self.sleep,
            spent=spent,
            equip=fleet.equip,
            **more,
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def sent(self, operation: str) -> list[dict[str, Any]]:
        """Return what an operation was asked with, each time."""
        return [asked for name, asked in self.cloud.requests if name == operation]
