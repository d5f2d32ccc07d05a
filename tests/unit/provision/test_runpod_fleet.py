"""A cluster gets its pods from the emulated RunPod, whatever happens on the way."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.fleet import BOOTING, READY, SETTLED_SECONDS
from vllm_ansible.provision.host_keys import HostKeys
from vllm_ansible.provision.runpod_api import ApiError, SpendLimit

from .runpod_world import H100, H200, KANSAS, PUBLIC_KEY, STATE, TEXAS, World

VOLUME = {"volume": "r1", "volume_gb": 1024}


@pytest.fixture
def world(runpod: World) -> World:
    return runpod


def test_from_nothing_to_a_cluster_and_then_nothing_to_do(world: World) -> None:
    done = world.converge()
    assert (done.stopped, done.launched) == ("", [0, 1])
    assert [(one.slot, one.status) for one in done.machines] == [(0, READY), (1, READY)]
    assert {(one.type, one.region) for one in done.machines} == {(H200, KANSAS)}
    assert [one.private_address for one in done.machines] == ["10.65.0.2", "10.65.0.3"]
    assert [one.door for one in done.machines] == ["[198.51.100.1]:22002", "[198.51.100.2]:22003"]
    assert done.cents_per_hour == 2 * 8 * 350
    assert world.cloud.writes == ["POST /clusters"]
    world.cloud.log.clear()
    again = world.converge()
    assert not again.changed and again.machines == done.machines
    assert world.cloud.writes == []


def test_a_launch_says_whose_it_is_and_lets_one_key_in(world: World) -> None:
    world.converge(**VOLUME)
    (body,) = world.cloud.bodies
    env = body["env"]
    assert body["name"] == f"r1-{env['RENTED_LAUNCH']}"
    assert env["RENTED_LAUNCH"].startswith(STATE[:8])
    assert (env["RENTED_CLUSTER"], env["RENTED_OWNER"], env["RENTED_STATE"]) == (
        *("r1", "ann@here", STATE),
    )
    assert (env["PUBLIC_KEY"], body["startSsh"], body["ports"]) == (PUBLIC_KEY, True, ["22/tcp"])
    (volume,) = world.account.volumes.values()
    assert body["mounts"] == {"network": [{"volumeId": volume["id"], "path": "/workspace"}]}
    assert {one.owner for one in world.machines()} == {"ann@here"}


def test_one_machine_is_a_pod_of_its_own(world: World) -> None:
    done = world.converge(count=1)
    assert (done.launched, [one.slot for one in done.machines]) == ([0], [0])
    assert world.account.clusters == {} and world.cloud.writes == ["POST /pods"]
    assert not world.converge(count=1).changed
    assert world.end(count=1).left == [] and world.account.pods == {}


def test_a_pod_is_up_once_ssh_and_its_peers_reach_it(world: World) -> None:
    world.account.faults.ssh_seconds = 300
    fleet = world.fleet()
    fleet.launch([0, 1], fleet.offers()[0])
    # Not listed yet, no rank, no overlay address, no port: paid for and not up, in each slot.
    world.account.faults.listing_seconds = 5
    for seconds in (0, 10, 50, 60, 200):
        world.now += seconds
        found = world.machines()
        assert [(one.slot, one.status) for one in found] == [(0, BOOTING), (1, BOOTING)], seconds
        assert {one.cents_per_hour for one in found} == {8 * 350}
    world.now += 100
    assert [one.status for one in world.machines()] == [READY, READY]


def test_a_port_that_moves_is_followed_and_a_restart_is_not_trusted(world: World) -> None:
    before = world.converge().machines
    keys = HostKeys(world.directory / "known_hosts", scan=lambda _: ["ssh-ed25519 AAAA"])
    keys.learn({one.shown_by: one.door for one in before}, 0)
    world.account.move_ports()
    after = world.converge().machines
    assert [one.id for one in after] == [one.id for one in before]
    keys.follow({one.shown_by: one.door for one in after})
    known = (world.directory / "known_hosts").read_text().splitlines()
    assert known == [f"{one.door} ssh-ed25519 AAAA" for one in after]
    # Its container disk is empty, its host keys are others: they are learnt by provision alone.
    pod = next(iter(world.account.pods.values()))
    pod.disk["/root/engine"] = "installed"
    world.account.restart(pod.id)
    assert pod.disk == {}
    world.now += 200
    restarted = world.converge().machines
    keys.follow({one.shown_by: one.door for one in restarted})
    known = (world.directory / "known_hosts").read_text().splitlines()
    assert restarted[0].door not in {line.split()[0] for line in known}
    assert restarted[1].door in {line.split()[0] for line in known}
    keys.learn({one.shown_by: one.door for one in restarted}, 0)
    assert restarted[0].door in (world.directory / "known_hosts").read_text()


def test_a_lost_answer_costs_no_second_cluster(world: World) -> None:
    world.cloud.lose_launch_replies = 1
    done = world.converge()
    assert done.stopped == "" and len(done.machines) == 2
    assert len(world.account.clusters) == 1
    assert world.fleet().pending is None


def test_a_launch_that_failed_at_runpod_is_made_after_the_lists_had_time(world: World) -> None:
    fleet = world.fleet()
    (offer, *_) = fleet.offers()
    world.cloud.fail_requests = 1
    with pytest.raises(Exception, match="upstream failure"):
        fleet.launch([0, 1], offer)
    before = world.now
    assert world.converge().launched == [0, 1]
    assert world.now - before >= SETTLED_SECONDS
    assert len(world.account.clusters) == 1


@pytest.mark.parametrize("late", [0, 40])
def test_a_controller_killed_while_it_launches_gets_no_second_cluster(
    world: World, late: float
) -> None:
    class Killed(BaseException):
        pass

    world.account.faults.listing_seconds = late
    fleet = world.fleet()
    create = fleet._api.create_cluster

    def killed(wanted: Any) -> str:
        create(wanted)
        raise Killed

    fleet._api.create_cluster = killed  # type: ignore[method-assign]  in its midst
    with pytest.raises(Killed):
        fleet.launch([0, 1], fleet.offers()[0])
    fleet._api.create_cluster = create  # type: ignore[method-assign]  as it was
    assert world.fleet().pending is not None
    done = world.converge()
    assert (done.launched, len(done.machines)) == ([], 2)
    assert len(world.account.clusters) == 1


def test_a_launch_from_another_state_is_not_ours_before_its_pods_are_listed(world: World) -> None:
    world.account.faults.listing_seconds = 1e6
    fleet = world.fleet(state="f" * 32)
    fleet.launch([0, 1], fleet.offers()[0])
    assert {(one.owner, one.state) for one in world.machines()} == {("somebody", "f" * 8)}
    assert {one.state for one in world.machines(state="f" * 32)} == {"f" * 32}


def test_where_there_is_no_room_the_next_place_and_then_the_next_type_is_taken(
    world: World,
) -> None:
    world.account.types["NVIDIA H200"].left[KANSAS] = 8
    # One pod of it is there: the catalogue counts per pod, the launch is refused as a whole.
    done = world.converge()
    assert {(one.type, one.region) for one in done.machines} == {(H200, TEXAS)}
    assert len(world.account.pods) == 2
    assert world.end().left == []
    world.account.types["NVIDIA H200"].left = {KANSAS: 0, TEXAS: 0}
    done = world.converge()
    assert {(one.type, one.region) for one in done.machines} == {(H100, KANSAS)}


def test_room_that_never_comes_ends_the_wait_with_nothing_rented(world: World) -> None:
    for one in world.account.types.values():
        one.left = dict.fromkeys(one.left, 0)
    done = world.converge()
    assert done.stopped.startswith("nothing has moved for 10 minutes: capacity for slot 0: none of")
    assert world.cloud.writes == []


def test_a_spend_limit_that_is_known_stops_before_anything_is_launched(world: World) -> None:
    with pytest.raises(PlanError) as refused:
        world.converge(types=(H200,), spend_limit=50)
    (problem,) = refused.value.problems
    assert problem.message.startswith(
        "2 pods would cost $56.00/h: beyond the account's spend limit"
    )
    assert "as if it had no room" in problem.expected and problem.where == "runpod_spend_limit"
    # What others run on the account counts, and what this cluster has does not.
    world.converge("other", types=(H200,), spend_limit=80)
    with pytest.raises(PlanError, match=r"pods that run on the account cost \$56.00/h"):
        world.converge(types=(H200,), spend_limit=80)
    assert not world.converge("other", types=(H200,), spend_limit=80).changed
    assert world.cloud.writes == ["POST /clusters"]


def test_a_spend_limit_counts_pods_that_do_not_run_yet(world: World) -> None:
    """RunPod lists them without a cost until they do."""
    world.account.faults.boot_seconds = 600
    fleet = world.fleet("other", types=(H200,))
    fleet.launch([0, 1], fleet.offers()[0])
    with pytest.raises(PlanError, match=r"pods that run on the account cost \$56.00/h"):
        world.converge(types=(H200,), spend_limit=80)
    world.account.faults.listing_seconds = 600
    with pytest.raises(PlanError, match=r"pods that run on the account cost \$56.00/h"):
        world.converge(types=(H200,), spend_limit=80)


def test_a_spend_limit_that_looks_like_no_room_is_told_apart(world: World) -> None:
    world.account.faults.spend_limit = 50
    with pytest.raises(SpendLimit, match="5 times, while the catalogue shows HIGH stock"):
        world.converge(types=(H200,), places=(TEXAS,), spend_limit=0)
    assert world.account.clusters == {} and world.fleet().pending is None


@pytest.mark.parametrize(
    ("status", "detail"),
    [(402, "insufficient balance"), (403, "access denied"), (422, "Request validation failed.")],
)
def test_a_refusal_ends_the_run_at_once_and_leaves_no_note(
    world: World, status: int, detail: str
) -> None:
    faults = world.account.faults
    faults.empty_balance, faults.unfit = status == 402, int(status == 422)
    if status == 403:
        faults.forbidden.add(("POST", "/clusters"))
    with pytest.raises(ApiError, match=detail) as refused:
        world.converge(**VOLUME)
    assert refused.value.status == status
    assert [path for method, path, _ in world.cloud.log if method == "POST"][-1] == "/clusters"
    assert world.fleet().pending is None
    # The volume that was made for it is of no use to anybody.
    assert world.account.volumes == {}


def test_a_broken_pod_has_its_cluster_replaced_while_it_serves_nobody(world: World) -> None:
    world.account.faults.broken = {1}
    slept = world.sleep

    def sleep(seconds: float) -> None:
        slept(seconds)
        if any(one.startswith("ending") for one in world.told):
            world.account.faults.broken = set()

    world.sleep = sleep  # type: ignore[method-assign]  it comes up meanwhile
    done = world.converge()
    assert [(one.slot, why) for one, why in done.ended] == [(1, "the provider calls it unhealthy")]
    assert [one.slot for one in done.machines] == [0, 1]
    assert len(world.account.clusters) == 1 and len(world.account.pods) == 2


def test_a_cluster_with_a_fit_pod_is_replaced_only_when_it_is_allowed(world: World) -> None:
    first = world.converge().machines
    world.fit, world.rejected = {first[0].id}, {first[1].id: "memory differs"}
    refused = world.converge()
    assert "the pod of slot 1 is to be replaced" in refused.stopped
    assert "slot 0 with it" in refused.stopped and "runpod_replace_cluster" in refused.stopped
    assert "DELETE" not in " ".join(world.cloud.writes)
    done = world.converge(replace=True)
    assert done.stopped == "" and done.launched == [0, 1]
    assert {one.id for one in done.machines}.isdisjoint({one.id for one in first})
    assert len(world.account.clusters) == 1 and len(world.account.pods) == 2


def test_pods_that_are_lacking_to_a_cluster_are_refused_with_the_reason(world: World) -> None:
    world.converge()
    with pytest.raises(PlanError, match="the cluster has 2 pods, 3 are wanted"):
        world.converge(count=3)
    assert world.cloud.writes == ["POST /clusters"]


def test_the_end_leaves_an_empty_list_and_keeps_the_volume(world: World) -> None:
    world.converge(**VOLUME)
    done = world.end(**VOLUME)
    assert len(done.ended) == 2 and done.left == []
    assert world.account.pods == {} and world.account.clusters == {}
    assert len(world.account.volumes) == 1
    assert world.end().ended == []


def test_pods_that_outlive_their_cluster_are_ended_one_by_one(world: World) -> None:
    world.converge()
    world.account.faults.outlived = 1
    done = world.end()
    assert done.left == [] and world.account.pods == {}
    assert [one.split("/")[1] for one in world.cloud.writes] == ["clusters"] * 2 + ["pods"] * 2


def test_pods_that_cannot_be_ended_are_named(world: World) -> None:
    world.converge()
    world.account.faults.outlived, world.account.faults.stuck = 1, True
    done = world.end()
    assert len(done.left) == 2
    assert done.refused.count("pod belongs to a cluster") == 2
    # They are paid for, and no slot is theirs.
    assert {(one.slot, one.status) for one in done.left} == {
        (1000, "unhealthy"),
        (1001, "unhealthy"),
    }


def test_a_volume_binds_pods_to_its_data_center(world: World) -> None:
    world.account.create_volume({"name": "r1", "dataCenter": KANSAS, "size": 1024})
    world.account.types["NVIDIA H200"].left[KANSAS] = 0
    assert {one.region for one in world.fleet(**VOLUME).offers()} == {KANSAS}
    with pytest.raises(PlanError, match=f"the network volume r1 is in {KANSAS}"):
        world.converge(places=(TEXAS,), volume="r1")
    with pytest.raises(PlanError, match="no size to make it with"):
        world.converge(volume="r2")
    with pytest.raises(PlanError, match=f"no data center of {TEXAS} has network volumes"):
        world.converge(places=(TEXAS,), volume="r2", volume_gb=100)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"types": ("8x NVIDIA H20",)}, "did you mean NVIDIA H200?"),
        ({"types": ("16x NVIDIA H200",)}, "no machine at RunPod has 16x NVIDIA H200"),
        ({"places": ("US-KS-9",)}, f"did you mean {KANSAS}?"),
    ],
)
def test_names_that_runpod_does_not_have_are_refused_before_a_launch(
    world: World, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError) as refused:
        world.converge(**change)
    assert words in str(refused.value)
    assert world.cloud.writes == []
