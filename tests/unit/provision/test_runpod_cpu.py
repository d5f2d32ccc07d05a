"""Pods without accelerators beside a cluster: one fills its volume, one sends the load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from vllm_ansible.problem import PlanError
from vllm_ansible.provision import ending
from vllm_ansible.provision.ending import end_every
from vllm_ansible.provision.fleet import SETTLED_SECONDS
from vllm_ansible.provision.orphans import Orphan
from vllm_ansible.provision.runpod_api import ApiError
from vllm_ansible.provision.runpod_lists import Lists
from vllm_ansible.provision.runpod_orphans import orphans

from .runpod_world import H200, KANSAS, STATE, TEXAS, World

ROLE = Path(__file__).parents[3] / "roles/provision"
VOLUME = {"volume": "r1", "volume_gb": 1024}


@pytest.fixture
def world(runpod: World) -> World:
    runpod.settings = {**VOLUME, "fill": True}
    return runpod


def found(world: World, **more: Any) -> list[Orphan]:
    api, wanted = world.api, world.wanted(**more)
    lists = Lists(api, wanted.cluster, STATE)
    return orphans(lists, api.volumes(), api.volume_bills(), wanted, lambda: world.now)


def test_the_volume_is_filled_by_the_cheapest_pod_that_has_enough_processors(world: World) -> None:
    done = world.converge_part("fill")
    assert done.stopped == ""
    (pod,) = done.machines
    # 0.03 a vCPU; the flavor at 0.01 has at most 4 of them.
    assert (pod.type, pod.region, pod.cents_per_hour) == ("8x cpu3c", KANSAS, 24)
    (volume,) = world.account.volumes.values()
    (body,) = world.cloud.bodies
    assert body["cpu"] == {"id": "cpu3c", "vcpuCount": 8} and "gpu" not in body
    assert body["mounts"] == {"network": [{"volumeId": volume["id"], "path": "/workspace"}]}
    assert (body["ports"], body["disk"]) == (["22/tcp"], 20)
    assert body["name"] == f"r1-fill-{body['env']['RENTED_LAUNCH']}"
    world.cloud.log.clear()
    assert not world.converge_part("fill").changed
    assert world.cloud.writes == []


def test_it_is_no_machine_of_the_cluster_and_is_ended_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "LOOK_SECONDS", 0.01)
    world.converge_part("fill")
    world.converge_part("load")
    done = world.converge()
    assert [one.slot for one in done.machines] == [0, 1] and done.surplus == []
    assert done.cents_per_hour == 2 * 8 * 350
    assert len(world.account.pods) == 4
    # What everybody reads of the cluster, its price with it, has all four.
    assert sorted(one.slot for one in world.machines()) == [0, 1, 900, 901]
    fleets = [world.fleet(), world.part("fill"), world.part("load")]
    ended = end_every(fleets, 600.0, world.told.append)
    assert (len(ended.ended), ended.left, world.account.pods) == (4, [], {})


@pytest.mark.parametrize("part", ["fill", "load"])
def test_a_launch_whose_answer_is_lost_brings_one_pod(world: World, part: str) -> None:
    world.cloud.lose_launch_replies = 1
    world.account.faults.listing_seconds = SETTLED_SECONDS - 10
    assert world.converge_part(part).stopped == ""
    assert world.cloud.writes.count("POST /pods") == 1 == len(world.account.pods)


def test_a_run_that_is_killed_leaves_a_pod_that_the_next_one_takes_and_orphans_names(
    world: World,
) -> None:
    fleet = world.part("fill")
    fleet.launch([0], fleet.offers()[0])
    world.now += 3600
    (orphan,) = found(world)
    assert orphan.why.startswith("of this cluster, to fill its network volume")
    assert (orphan.type, orphan.cents_per_hour) == ("8x cpu3c", 24)
    assert "$0.24/h, 1.0 h" in orphan.line()
    assert orphan.why.endswith("site.yml continues that and ends it")
    # Where nothing continues it, nothing promises that.
    (orphan,) = found(world, fill=False)
    assert orphan.why.endswith("runpod_fill is false: no stage continues that")
    assert not world.converge_part("fill").changed
    assert len(world.account.pods) == 1


def test_a_pod_that_sends_the_load_is_claimed_while_the_inventory_wants_it(world: World) -> None:
    world.converge()
    world.converge_part("load")
    assert "mounts" not in world.cloud.bodies[-1]
    assert found(world, load=True) == []
    (orphan,) = found(world)
    assert "runpod_load is false" in orphan.why


def test_a_pod_for_the_load_that_does_not_boot_is_ended_before_the_run_gives_up(
    world: World,
) -> None:
    """Else each run would end first, and it would cost until teardown; by the role's own times."""
    defaults, (rent, *_) = (
        yaml.safe_load((ROLE / one).read_text("utf-8"))
        for one in ("defaults/main.yml", "tasks/part.yml")
    )
    shown = NativeEnvironment()
    silence, boot = (
        float(
            shown.from_string(rent["rented_machines"][name]).render(defaults, provision_part="load")
        )
        for name in ("silence_seconds", "boot_seconds")
    )
    world.account.faults.boot_seconds = 1e9
    done = world.converge_part("load", boot, silence)
    assert done.stopped and done.ended
    assert "ending a machine that sends the load: still booting after 10 minutes" in world.told


def test_a_new_volume_is_made_where_accelerators_can_be_had(world: World) -> None:
    account = world.account
    account.centers[TEXAS] = ["STANDARD"]
    account.types["NVIDIA H200"].left[KANSAS] = account.types["NVIDIA H100 80GB HBM3"].left[
        KANSAS
    ] = 0
    (pod,) = world.converge_part("fill").machines
    (volume,) = account.volumes.values()
    assert (pod.region, volume["dataCenter"], pod.type) == (TEXAS, TEXAS, "8x cpu5c")


def test_the_load_comes_from_the_data_center_of_the_cluster(world: World) -> None:
    world.settings = {"types": (H200,), "places": (TEXAS, KANSAS)}
    world.account.types["NVIDIA H200"].left[TEXAS] = 0
    world.converge()
    (pod,) = world.converge_part("load").machines
    assert pod.region == KANSAS


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("8x cpu5x",), "RunPod has no flavor cpu5x of CPU pods"),
        (("64x cpu5c",), "RunPod has no CPU pod 64x cpu5c"),
    ],
)
def test_types_that_do_not_exist_are_refused_before_a_volume_is_made(
    world: World, types: tuple[str, ...], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        world.converge_part("fill", cpu_types=types)
    assert world.cloud.writes == []


def test_a_data_center_without_cpu_pods_is_said_at_once(world: World) -> None:
    for one in world.account.cpus.values():
        one.left.clear()
    with pytest.raises(PlanError, match="RunPod offers no CPU pod in US-KS-2") as refused:
        world.converge_part("fill")
    assert "runpod_fill" in str(refused.value)


def test_the_spend_limit_counts_the_cluster_too(world: World) -> None:
    world.converge()
    with pytest.raises(PlanError, match=r"1 pods would cost \$0\.24/h, and pods that run"):
        world.converge_part("load", spend_limit=56.1)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"gpu": {"id": "NVIDIA H200"}}, 400, "exactly one of gpu or cpu"),
        ({"cpu": {"id": "cpu5c", "vcpuCount": 6}}, 400, "power of two"),
        ({"cpu": {"id": "cpu5c", "vcpuCount": 64}}, 400, "cannot be had"),
        ({"cpu": {"id": "cpu5c"}}, 422, "'vcpuCount' is a required property"),
        ({"mounts": {"persistent": {"size": 10, "path": "/v"}}}, 400, "invalid for a CPU pod"),
        ({"globalNetworking": True}, 400, "requires an NVIDIA GPU"),
    ],
)
def test_the_emulator_refuses_what_no_cpu_pod_can_be(
    runpod: World, change: dict[str, Any], status: int, words: str
) -> None:
    wanted = {"name": "p", "image": "i", "cpu": {"id": "cpu5c", "vcpuCount": 8}, **change}
    with pytest.raises(ApiError) as refused:
        runpod.api.create_pod(wanted)
    assert refused.value.status == status
    assert words in " ".join([refused.value.detail, *refused.value.errors])
    assert runpod.account.pods == {}


def test_the_door_is_published_with_the_pods_where_it_is_asked_for(world: World) -> None:
    world.converge(publish_door=True)
    assert world.cloud.bodies[-1]["ports"] == ["22/tcp", "9443/tcp"]
    machines = world.machines()
    assert [one.published for one in machines] == [
        "9443=198.51.100.1:29443",
        "9443=198.51.100.2:29443",
    ]
