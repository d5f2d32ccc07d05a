"""A cluster's world at RunPod: a cloud, a controller, and a time that passes while one waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.runpod_cloud import Cloud
from vllm_ansible.provision.clock import Clock
from vllm_ansible.provision.convergence import Outcome, converge
from vllm_ansible.provision.ending import Ended, end_all
from vllm_ansible.provision.fleet import Machine, Wish
from vllm_ansible.provision.parts import PURPOSES
from vllm_ansible.provision.runpod_api import RunpodApi
from vllm_ansible.provision.runpod_cpu import CpuFleet
from vllm_ansible.provision.runpod_fleet import RunpodFleet
from vllm_ansible.provision.runpod_lists import Lists
from vllm_ansible.provision.runpod_settings import Settings
from vllm_ansible.provision.runpod_surroundings import Surroundings
from vllm_ansible.provision.runpod_template import Template

INTERVALS = {"request": 0.0, "launch": 0.0}
H200, H100 = "8x NVIDIA H200", "8x NVIDIA H100 80GB HBM3"
KANSAS, TEXAS = "US-KS-2", "US-TX-3"
STATE = "0123456789abcdef0123456789abcdef"
PUBLIC_KEY = "ssh-ed25519 AAAA ann@here"


class World:
    """A cloud, a controller, and a time that passes while one waits."""

    def __init__(self, cloud: Cloud, directory: Path, begins: float) -> None:
        self.cloud, self.directory = cloud, directory
        self.account = cloud.account
        self.now = begins
        self.told: list[str] = []
        self.rejected: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        # Ids of machines that were found fit.
        self.fit: set[str] = set()
        (directory / "key.pub").write_text(f"{PUBLIC_KEY}\n")
        # Seconds that the client has waited after failures.
        self.waits: list[float] = []
        clock = Clock(directory / "clock", INTERVALS, sleep=self.waits.append)
        self.api = RunpodApi("secret", clock, cloud.url, self.waits.append)

    def wanted(self, cluster: str = "r1", **more: Any) -> Settings:
        given = {"types": (H200, H100), "places": (KANSAS, TEXAS), "count": 2, **self.settings}
        keys = (self.directory / "key", self.directory / "key.pub")
        return Settings(cluster, *keys, **{**given, **more})

    def fleet(self, cluster: str = "r1", state: str = STATE, **more: Any) -> RunpodFleet:
        wanted = self.wanted(cluster, **more)
        return RunpodFleet(
            self.api,
            Template(wanted, "ann@here", state),
            Surroundings(self.api, wanted),
            self.directory / cluster / "launch.json",
            lambda: self.now,
            unjudged=lambda one: one.id not in self.fit,
        )

    def part(self, name: str, **more: Any) -> CpuFleet:
        wanted = self.wanted(**more)
        return CpuFleet(
            self.api,
            Template(wanted, "ann@here", STATE, name),
            Surroundings(self.api, wanted),
            self.directory / wanted.cluster / f"launch-{name}.json",
            lambda: self.now,
            unjudged=lambda one: one.id not in self.fit,
        )

    def converge_part(
        self, name: str, boot: float = 1800, silence: float = 600, **more: Any
    ) -> Outcome:
        return converge(
            self.part(name, **more),
            Wish(1, boot_seconds=boot, purpose=PURPOSES[name]),
            {},
            silence,
            self.told.append,
            now=lambda: self.now,
            sleep=self.sleep,
        )

    def converge(
        self, cluster: str = "r1", spent: Callable[[], str] = str, boot: float = 1800, **more: Any
    ) -> Outcome:
        fleet = self.fleet(cluster, **more)
        wish = Wish(self.wanted(**more).count, boot_seconds=boot, together=True)
        told = self.told.append
        return converge(
            fleet,
            wish,
            self.rejected,
            600.0,
            told,
            now=lambda: self.now,
            sleep=self.sleep,
            spent=spent,
            unjudged=lambda one: one.id not in self.fit,
        )

    def end(self, **more: Any) -> Ended:
        fleet = self.fleet(**more)
        return end_all(fleet, 600.0, self.told.append, lambda: self.now, self.sleep)

    def machines(self, cluster: str = "r1", state: str = STATE) -> list[Machine]:
        return Lists(self.api, cluster, state).machines()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
