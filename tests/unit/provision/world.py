"""A cluster's world: an emulated cloud, a controller, and a time that passes while one waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.lambda_cloud import Cloud
from vllm_ansible.provision.clock import Clock
from vllm_ansible.provision.convergence import Outcome, converge
from vllm_ansible.provision.fleet import Wish
from vllm_ansible.provision.lambda_api import LambdaApi
from vllm_ansible.provision.lambda_fleet import LambdaFleet, Template
from vllm_ansible.provision.lambda_settings import Settings
from vllm_ansible.provision.lambda_surroundings import Surroundings

INTERVALS = {"request": 0.0, "launch": 0.0}
GH200, H100 = "gpu_1x_gh200", "gpu_1x_h100_sxm5"
EAST, WEST = "us-east-3", "us-west-1"


class World:
    """A cloud, a controller, and a time that passes while one waits."""

    def __init__(self, cloud: Cloud, directory: Path) -> None:
        self.cloud, self.directory = cloud, directory
        self.now = 1_000_000.0
        self.told: list[str] = []
        self.rejected: dict[str, str] = {}
        self.silence = 3600.0
        self.settings: dict[str, Any] = {}

    def fleet(self, cluster: str = "r1") -> LambdaFleet:
        clock = Clock(self.directory / "clock", INTERVALS)
        api = LambdaApi("secret", clock, self.cloud.url, lambda _: None)
        systems = [self.settings["file_system"]] if "file_system" in self.settings else []
        template = Template(cluster, "mine", "ann@here", systems)
        more = {"types": (GH200, H100), "regions": (EAST, WEST), "count": 3, **self.settings}
        wanted = Settings(cluster, self.directory / "key", "mine", **more)
        surroundings = Surroundings(api, wanted)
        note = self.directory / cluster / "launch.json"
        return LambdaFleet(api, template, wanted.types, surroundings, note, lambda: self.now)

    def converge(
        self, count: int = 3, cluster: str = "r1", spent: Callable[[], str] = str, **more: Any
    ) -> Outcome:
        wish = Wish(count, **more)
        arguments = (self.fleet(cluster), wish, self.rejected, self.silence, self.told.append)
        return converge(*arguments, now=lambda: self.now, sleep=self.sleep, spent=spent)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def slots(self) -> list[str]:
        """Names of the machines that cost money."""
        listed = self.cloud.account.list_instances()
        return sorted(one["name"] for one in listed if one["status"] != "terminating")
