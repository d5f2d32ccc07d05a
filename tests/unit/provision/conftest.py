"""What the tests of rented machines share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import ec2, ec2_account
from tests.emulators.ec2_parts import environment
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.emulators.runpod_account import Account as RunpodAccount
from tests.emulators.runpod_cloud import Cloud as RunpodCloud
from tests.emulators.runpod_parts import Cpu, Gpu

from . import runpod_world
from .aws_rental import AwsSite, AwsTasks
from .aws_world import B300, P5, SMALL, A, AwsWorld, B
from .rental import KEY, Site
from .world import EAST, GH200, H100, WEST, World


@pytest.fixture(autouse=True)
def no_systemd_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no test leave a unit with the user who runs it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "no-runtime"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    types = [
        Type(GH200, "GH200 (96 GB)", 149, left={EAST: 4, WEST: 9}),
        Type(H100, "H100 (80 GB)", 399, left={EAST: 9}),
    ]
    made: list[World] = []
    account = Account(types, now=lambda: made[0].now)
    with Cloud(account, "secret", request_seconds=0, launch_seconds=0) as cloud:
        made.append(World(cloud, tmp_path))
        account.add_ssh_key("mine", "ssh-ed25519 A")
        account.faults.boot_seconds = 200
        account.faults.terminating_seconds = 60
        yield made[0]


@pytest.fixture
def site(tmp_path: Path, play: Any) -> Iterator[Site]:
    account = Account([Type(GH200, "GH200 (96 GB)", 149, left={EAST: 4})])
    account.add_ssh_key("mine", "ssh-ed25519 A")
    with Cloud(account, KEY, request_seconds=0, launch_seconds=0) as cloud:
        yield Site(tmp_path, cloud, play)
        assert cloud.misfits == []


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    made: list[AwsWorld] = []
    room = {(kind, zone): 4 for kind in (P5, B300, SMALL) for zone in (A, B)}
    account = ec2_account.Account(room, now=lambda: made[0].now)
    with ec2.Ec2(account) as cloud:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in environment(cloud.url).items():
            monkeypatch.setenv(name, value)
        made.append(AwsWorld(cloud, tmp_path))
        yield made[0]
        assert cloud.misfits == []


@pytest.fixture
def aws_tasks(tmp_path: Path, aws: AwsWorld, play: Any) -> AwsTasks:
    # Real processes wait in real time.
    aws.cloud.account.now = time.time
    return AwsTasks(tmp_path, aws.cloud, play)


@pytest.fixture
def aws_site(tmp_path: Path, aws: AwsWorld) -> AwsSite:
    place = tmp_path / "clone"
    place.mkdir()
    return AwsSite(place, aws.cloud)


@pytest.fixture
def runpod(tmp_path: Path) -> Iterator[runpod_world.World]:
    kansas, texas = runpod_world.KANSAS, runpod_world.TEXAS
    types = [
        Gpu("NVIDIA H200", 3.5, {kansas: 16, texas: 64}),
        Gpu("NVIDIA H100 80GB HBM3", 2.5, {kansas: 64}, memory=80),
    ]
    made: list[runpod_world.World] = []
    centers: dict[str, list[str]] = {kansas: ["STANDARD"], texas: []}
    cpus = [
        Cpu("cpu5c", 0.04, {kansas: 64, texas: 64}),
        Cpu("cpu3c", 0.03, {kansas: 64}),
        Cpu("cpu3m", 0.01, {kansas: 64}, most=4),
    ]
    account = RunpodAccount(types, centers, now=lambda: made[0].now, cpus=cpus)
    with RunpodCloud(account, "secret") as cloud:
        made.append(runpod_world.World(cloud, tmp_path, 1_790_000_000.0))
        account.faults.boot_seconds = 100
        account.faults.ssh_seconds = 10
        account.faults.overlay_seconds = 30
        yield made[0]
        assert cloud.misfits == []
