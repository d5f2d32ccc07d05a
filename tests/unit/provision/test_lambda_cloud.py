"""The emulated cloud, asked by our client: what it answers fits the published description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from vllm_ansible.provision.clock import Clock
from vllm_ansible.provision.fleet import ReplyLost
from vllm_ansible.provision.lambda_api import NO_CAPACITY, NOT_FOUND, ApiError, LambdaApi

REGION = "us-east-3"
INTERVALS = {"request": 0.0, "launch": 0.0}


class Now:
    """A time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def cloud(now: Now) -> Iterator[Cloud]:
    kind = Type("gpu_1x_gh200", "GH200 (96 GB)", 149, left={REGION: 2, "us-west-1": 0})
    account = Account([kind], now=now)
    account.add_ssh_key("k", "ssh-ed25519 A")
    with Cloud(account, "secret", request_seconds=0, launch_seconds=0) as made:
        yield made
        assert made.misfits == []


@pytest.fixture
def api(cloud: Cloud, tmp_path: Path) -> LambdaApi:
    return LambdaApi("secret", Clock(tmp_path / "clock", INTERVALS), cloud.url, lambda _: None)


def launch(api: LambdaApi, **more: Any) -> str:
    wanted = {"region_name": REGION, "instance_type_name": "gpu_1x_gh200", "ssh_key_names": ["k"]}
    return api.launch({**wanted, **more})


def test_a_launch_that_is_not_as_described_is_refused(api: LambdaApi) -> None:
    with pytest.raises(ApiError, match="ssh_key_names"):
        api.launch({"region_name": REGION, "instance_type_name": "gpu_1x_gh200"})
    with pytest.raises(ApiError, match="value"):
        launch(api, tags=[{"key": "cluster"}])
    assert api.instances() == []


def test_an_instance_boots_lives_and_ends(cloud: Cloud, api: LambdaApi, now: Now) -> None:
    cloud.account.faults.boot_seconds = 200
    cloud.account.faults.terminating_seconds = 60
    tags = [{"key": "cluster", "value": "r1"}]
    identity = launch(api, name="r1-0", hostname="r1-0", tags=tags)
    (found,) = api.instances()
    assert (found["id"], found["status"], found["tags"]) == (identity, "booting", tags)
    now.now = 201
    assert [one["status"] for one in api.instances()] == ["active"]
    assert api.terminate([identity]) == [identity]
    assert [one["status"] for one in api.instances()] == ["terminating"]
    now.now = 300
    assert api.instances() == []


def test_capacity_runs_out_and_comes_back(api: LambdaApi) -> None:
    first, _ = launch(api), launch(api)
    with pytest.raises(ApiError) as refused:
        launch(api)
    assert refused.value.code == NO_CAPACITY
    regions = api.instance_types()["gpu_1x_gh200"]["regions_with_capacity_available"]
    assert regions == []
    api.terminate([first])
    assert launch(api)


def test_what_a_launch_names_has_to_exist(api: LambdaApi) -> None:
    with pytest.raises(ApiError) as refused:
        launch(api, ssh_key_names=["nobody"])
    assert refused.value.code == NOT_FOUND
    for wrong in (
        {"file_system_names": ["nobody"]},
        {"firewall_rulesets": [{"id": "0"}]},
        {"ssh_key_names": ["k", "k"]},
        {"hostname": "No_Host"},
        {"tags": [{"key": "Not Good", "value": ""}]},
        {"region_name": "moon"},
        {"instance_type_name": "gpu_0x"},
    ):
        with pytest.raises(ApiError):
            launch(api, **wrong)
    assert api.instances() == []


def test_an_account_can_be_full(cloud: Cloud, api: LambdaApi) -> None:
    cloud.account.faults.quota = 1
    launch(api)
    with pytest.raises(ApiError, match="Quota exceeded"):
        launch(api)


def test_an_unhealthy_machine_is_listed_as_such(cloud: Cloud, api: LambdaApi, now: Now) -> None:
    cloud.account.faults.unhealthy = 1
    launch(api)
    now.now = 1
    assert [one["status"] for one in api.instances()] == ["unhealthy"]


def test_a_lost_reply_leaves_an_instance(cloud: Cloud, api: LambdaApi) -> None:
    cloud.lose_launch_replies = 1
    with pytest.raises(ReplyLost):
        launch(api)
    assert len(api.instances()) == 1


def test_a_file_system_is_mounted_in_its_region_and_kept_while_in_use(api: LambdaApi) -> None:
    made = api.create_file_system("shared", REGION)
    with pytest.raises(ApiError, match="already exists"):
        api.create_file_system("shared", REGION)
    identity = launch(api, file_system_names=["shared"])
    (found,) = api.instances()
    assert found["file_system_mounts"][0]["mount_point"] == "/lambda/nfs/shared"
    with pytest.raises(ApiError, match="in use"):
        api.delete_file_system(made["id"])
    api.terminate([identity])
    api.instances()
    api.delete_file_system(made["id"])
    assert api.file_systems() == []


def test_a_ruleset_is_changed_and_kept_while_in_use(api: LambdaApi) -> None:
    rule = {
        "protocol": "tcp",
        "port_range": [22, 22],
        "source_network": "0.0.0.0/0",
        "description": "SSH",
    }
    made = api.create_ruleset("r1", REGION, [])
    assert api.change_ruleset(made["id"], [rule])["rules"] == [rule]
    identity = launch(api, firewall_rulesets=[{"id": made["id"]}])
    assert api.rulesets()[0]["instance_ids"] == [identity]
    with pytest.raises(ApiError, match="in use"):
        api.delete_ruleset(made["id"])
    api.terminate([identity])
    api.delete_ruleset(made["id"])
    assert api.rulesets() == []


def test_another_key_is_refused_and_nothing_is_done(cloud: Cloud, tmp_path: Path) -> None:
    stranger = LambdaApi("other", Clock(tmp_path / "clock", INTERVALS), cloud.url)
    with pytest.raises(ApiError) as refused:
        stranger.create_ruleset("r1", REGION, [])
    assert refused.value.status == 401
    assert cloud.account.rulesets == {}


def test_failures_of_the_server_are_outlived(cloud: Cloud, api: LambdaApi) -> None:
    cloud.fail_requests = 2
    assert api.instances() == []
    assert [status for _, _, status in cloud.log] == [500, 500, 200]


def test_who_asks_too_often_is_refused_and_asked_to_wait(cloud: Cloud, tmp_path: Path) -> None:
    cloud.request_seconds = 60.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        cloud.request_seconds = 0.0

    clock = Clock(tmp_path / "clock", INTERVALS, sleep=sleep)
    api = LambdaApi("secret", clock, cloud.url, sleep)
    assert api.instances() == api.instances() == []
    assert [status for _, _, status in cloud.log] == [200, 429, 200]
    assert len(slept) == 1
