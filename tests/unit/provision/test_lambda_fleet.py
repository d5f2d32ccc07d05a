"""A cluster gets its machines from the emulated cloud, whatever happens on the way."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.provision.fleet import SETTLED_SECONDS
from vllm_ansible.provision.lambda_api import QUOTA, ApiError

from .world import EAST, GH200, H100, WEST, World


def test_from_nothing_to_all_machines_and_then_nothing_to_do(world: World) -> None:
    done = world.converge(spares=1)
    assert done.stopped == ""
    assert done.launched == [0, 1, 2, 3]
    assert [one.slot for one in done.machines] == [0, 1, 2, 3]
    assert {(one.type, one.region) for one in done.machines} == {(GH200, EAST)}
    assert done.cents_per_hour == 4 * 149
    world.cloud.log.clear()
    again = world.converge(spares=1)
    assert not again.changed
    assert again.machines == done.machines
    assert world.cloud.writes == []


def test_machines_say_whose_they_are(world: World) -> None:
    world.converge(1)
    (found,) = world.cloud.account.list_instances()
    tags = {one["key"]: one["value"] for one in found["tags"]}
    assert tags["vllm-ansible:cluster"] == "r1"
    assert tags["vllm-ansible:owner"] == "ann@here"
    assert tags["vllm-ansible:since"] == "1000000"
    assert (found["name"], found["hostname"]) == ("r1-0", "r1-0")


def test_another_cluster_has_its_own_machines(world: World) -> None:
    world.converge(1)
    world.converge(1, cluster="r2")
    assert world.slots == ["r1-0", "r2-0"]
    assert [one.launch for one in world.fleet("r2").machines()] != [
        one.launch for one in world.fleet("r1").machines()
    ]


def test_an_unhealthy_machine_is_replaced(world: World) -> None:
    world.cloud.account.faults.unhealthy = 1
    done = world.converge(2)
    assert [(one.slot, why) for one, why in done.ended] == [(0, "the provider calls it unhealthy")]
    assert done.launched == [0, 1, 0]
    assert world.slots == ["r1-0", "r1-1"]


def test_a_machine_that_was_not_accepted_is_replaced(world: World) -> None:
    first = world.converge(2).machines[1]
    world.rejected = {first.id: "cuInit error 802"}
    done = world.converge(2)
    assert [(one.id, why) for one, why in done.ended] == [(first.id, "cuInit error 802")]
    assert world.slots == ["r1-0", "r1-1"]
    assert not world.converge(2).changed


def test_one_that_never_boots_is_replaced(world: World) -> None:
    world.cloud.account.faults.boot_seconds = 1e9
    world.told.clear()
    original = world.sleep

    def sleep(seconds: float) -> None:
        original(seconds)
        if any("still booting" in one for one in world.told):
            world.cloud.account.faults.boot_seconds = 10

    world.sleep = sleep  # type: ignore[method-assign]
    done = world.converge(1)
    # The second was launched before anything could be known of the first.
    assert "still booting after 30 minutes" in {why for _, why in done.ended}
    assert world.slots == ["r1-0"]


def test_a_region_that_keeps_handing_out_broken_machines_is_given_up(world: World) -> None:
    world.cloud.account.faults.unhealthy = 99
    done = world.converge(1)
    assert done.stopped == "4 machines of slot 0 were bad"
    assert world.slots == []


def test_machines_that_end_by_themselves_right_after_launch_are_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ever sees one up, so none is found bad; each is paid for from its launch."""
    account, original = world.cloud.account, world.sleep

    def sleep(seconds: float) -> None:
        original(seconds)
        assert len(launches()) < 20, "asked for ever"
        account.terminate([one["id"] for one in account.list_instances() if one["name"] == "r1-0"])

    def launches() -> list[str]:
        return [path for path in world.cloud.writes if path.endswith("/launch")]

    monkeypatch.setattr(world, "sleep", sleep)
    done = world.converge(1)
    assert done.stopped == "4 machines of slot 0 were launched, and none stayed"
    assert len(launches()) == len(done.launched) == 4


def test_a_lost_answer_costs_no_second_machine(world: World) -> None:
    world.cloud.lose_launch_replies = 1
    done = world.converge(2)
    assert done.stopped == ""
    assert world.slots == ["r1-0", "r1-1"]
    assert len(world.cloud.account.list_instances()) == 2
    assert world.fleet().pending is None


def test_a_launch_that_never_arrived_is_made_after_the_listing_had_time(world: World) -> None:
    before = world.now
    world.cloud.fail_launches = 1
    done = world.converge(1)
    assert done.launched == [0]
    assert world.now - before >= SETTLED_SECONDS
    assert any("the answer to the launch of slot 0 was lost" in one for one in world.told)


def test_a_controller_killed_in_the_middle_of_a_launch_leaks_nothing(world: World) -> None:
    class Killed(BaseException):
        pass

    fleet = world.fleet()
    (offer, *_) = fleet.offers()
    api = fleet._api
    launch = api.launch

    def killed(wanted: Any) -> str:
        launch(wanted)
        raise Killed

    api.launch = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        fleet.launch([0], offer)
    assert world.fleet().pending is not None
    assert world.converge(2).launched == [1]
    assert world.slots == ["r1-0", "r1-1"]


def test_where_one_region_is_empty_the_next_is_taken_and_kept_to(world: World) -> None:
    world.cloud.account.types[GH200].left[EAST] = 0
    done = world.converge(2)
    assert {(one.type, one.region) for one in done.machines} == {(GH200, WEST)}
    world.cloud.account.types[GH200].left[EAST] = 9
    assert {one.region for one in world.converge(3).machines} == {WEST}


def test_capacity_that_comes_late_is_waited_for(world: World) -> None:
    account = world.cloud.account
    account.types[GH200].left = {EAST: 1, WEST: 0}
    original = world.sleep

    def sleep(seconds: float) -> None:
        original(seconds)
        if world.now > 1_000_900:
            account.types[GH200].left[EAST] += 5

    world.sleep = sleep  # type: ignore[method-assign]
    done = world.converge(3)
    assert done.stopped == "" and len(done.machines) == 3
    assert f"capacity for slot 1: none of {GH200} in {EAST}" in " ".join(world.told)


def test_capacity_that_never_comes_ends_with_what_there_is_and_what_it_costs(world: World) -> None:
    world.cloud.account.types[GH200].left = {EAST: 1, WEST: 0}
    done = world.converge(3)
    assert done.stopped.startswith("nothing has moved for 60 minutes: capacity for slot 1")
    assert (len(done.machines), done.cents_per_hour) == (1, 149)


def test_a_limit_of_price_stops_before_anything_is_rented(world: World) -> None:
    done = world.converge(3, max_cents_per_hour=300)
    assert done.stopped == "3 machines would cost $4.47 an hour, $3.00 are allowed"
    assert world.slots == []


def test_of_two_types_the_one_within_the_limit_is_taken(world: World) -> None:
    world.settings = {"types": (H100, GH200)}
    done = world.converge(3, max_cents_per_hour=500)
    assert {one.type for one in done.machines} == {GH200}


def test_time_or_money_that_runs_out_while_it_waits_ends_the_wait(world: World) -> None:
    world.cloud.account.types[GH200].left = {EAST: 1, WEST: 0}
    done = world.converge(3, spent=lambda: "spent" if world.now > 1_000_600 else "")
    assert done.stopped == "spent"
    assert world.now < 1_000_700


def test_a_spare_takes_the_slot_of_a_machine_that_is_gone(world: World) -> None:
    first = world.converge(2, spares=1).machines
    world.rejected = {first[1].id: "cuInit error 802"}
    done = world.converge(2, spares=1)
    assert (done.taken, done.launched) == ([(1, 2)], [2])
    assert [one.id for one in done.machines[:2]] == [first[0].id, first[2].id]
    assert world.slots == ["r1-0", "r1-1", "r1-2"]
    assert not world.converge(2, spares=1).changed


def test_a_spare_that_nobody_has_keeps_no_one_waiting(world: World) -> None:
    world.cloud.account.types[GH200].left = {EAST: 2, WEST: 0}
    before = world.now
    done = world.converge(2, spares=1)
    assert (done.stopped, [one.slot for one in done.machines]) == ("", [0, 1])
    assert world.now - before < 600
    world.cloud.account.types[GH200].left = {EAST: 1, WEST: 0}
    assert world.converge(2, spares=1).launched == [2]


def test_a_full_quota_stops_at_once_in_the_words_of_the_api(world: World) -> None:
    world.cloud.account.faults.quota = 1
    with pytest.raises(ApiError, match="Quota exceeded") as refused:
        world.converge(3)
    assert refused.value.code == QUOTA
    assert world.slots == ["r1-0"]


def test_machines_of_no_slot_are_told_and_left_alone(world: World) -> None:
    world.converge(3)
    done = world.converge(2)
    assert [one.slot for one in done.surplus] == [2]
    assert not done.changed
    assert world.slots == ["r1-0", "r1-1", "r1-2"]
