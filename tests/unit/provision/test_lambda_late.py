"""What Lambda says late, refuses, or never says: nothing is rented twice, nothing stays behind."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.provision.ending import end_all
from vllm_ansible.provision.fleet import SETTLED_SECONDS, ReplyLost
from vllm_ansible.provision.lambda_api import ApiError

from .world import EAST, WEST, World


@pytest.mark.parametrize("lag", [5, 45])
def test_a_list_that_lags_behind_is_not_taken_for_a_missing_machine(
    world: World, lag: float
) -> None:
    world.cloud.account.faults.listing_seconds = lag
    done = world.converge(2)
    assert done.stopped == ""
    assert done.launched == [0, 1]
    assert done.ended == []
    assert world.slots == ["r1-0", "r1-1"]


def test_a_launch_that_was_answered_is_listed_some_time_and_waited_for(world: World) -> None:
    world.cloud.account.faults.listing_seconds = 5 * SETTLED_SECONDS
    assert world.converge(1).launched == [0]
    assert world.slots == ["r1-0"]


def test_a_machine_that_was_launched_and_not_listed_when_all_is_ended_ends_too(
    world: World,
) -> None:
    world.cloud.account.faults.listing_seconds = 20
    fleet = world.fleet()
    (offer, *_) = fleet.offers()
    fleet.launch([0], offer)  # and then the run is killed
    fleet = world.fleet()
    done = end_all(fleet, 600, world.told.append, lambda: world.now, world.sleep)
    assert len(done.ended) == 1
    assert world.slots == []


def test_an_end_that_is_listed_late_is_one_machine_lost(world: World) -> None:
    world.cloud.account.faults.unhealthy = 1
    world.cloud.account.faults.listing_seconds = 10
    done = world.converge(1)
    assert done.stopped == ""
    assert len(done.ended) == 1
    assert world.slots == ["r1-0"]


def test_an_answer_that_is_lost_late_is_waited_for_from_then_on(world: World) -> None:
    fleet = world.fleet()
    (offer, *_) = fleet.offers()
    began = world.now

    def slow(_: Any) -> str:
        world.now += 50
        raise ReplyLost("no answer for 30 s, after a wait for the turn")

    fleet._api.launch = slow  # type: ignore[method-assign]
    with pytest.raises(ReplyLost):
        fleet.launch([0], offer)
    pending = fleet.pending
    assert pending is not None and pending.at == began + 50


def test_capacity_that_is_shown_and_refused_is_not_asked_for_ever(world: World) -> None:
    world.cloud.account.faults.full = 10**6
    world.silence = 300.0
    began = world.now
    done = world.converge(1)
    assert done.stopped.startswith("nothing has moved for 5 minutes")
    assert world.now - began < 2 * world.silence


def test_a_launch_that_always_fails_is_not_tried_for_ever(world: World) -> None:
    world.cloud.fail_launches = 10**6
    world.silence = 300.0
    done = world.converge(1)
    assert done.stopped.startswith("nothing has moved for 5 minutes")
    assert world.slots == []


def test_a_file_system_does_not_bind_to_a_region_that_had_no_machine(world: World) -> None:
    world.settings["file_system"] = "models"
    world.cloud.account.faults.full = 1
    done = world.converge(1)
    assert [one.region for one in done.machines] == [WEST]
    systems = world.cloud.account.file_systems.values()
    assert [(one["name"], one["region"]["name"]) for one in systems] == [("models", WEST)]


def test_a_file_system_that_was_there_is_kept_whatever_is_refused(world: World) -> None:
    world.settings["file_system"] = "models"
    world.cloud.account.create_file_system("models", EAST)
    world.cloud.account.faults.full = 1
    done = world.converge(1)
    assert [one.region for one in done.machines] == [EAST]
    assert len(world.cloud.account.file_systems) == 1


def test_one_machine_that_is_gone_does_not_keep_the_others(world: World) -> None:
    gone, *_ = world.converge(3).machines
    fleet = world.fleet()
    stale = fleet.machines()
    world.cloud.account.terminate([gone.id])
    world.now += 120
    world.cloud.account.list_instances()
    fleet.end(stale)
    assert world.slots == []


def test_one_machine_that_cannot_end_yet_does_not_keep_the_others_and_is_told(
    world: World,
) -> None:
    held, *_ = world.converge(3).machines
    world.cloud.account.faults.held.add(held.id)
    fleet = world.fleet()
    done = end_all(fleet, 300, world.told.append, lambda: world.now, world.sleep)
    assert world.slots == ["r1-0"]
    assert [one.id for one in done.left] == [held.id]
    assert "vm-has-not-launched" in done.refused
    world.cloud.account.faults.held.clear()
    done = end_all(world.fleet(), 300, world.told.append, lambda: world.now, world.sleep)
    assert done.left == [] and world.slots == []


def test_a_machine_that_cannot_be_replaced_stops_the_run_with_the_reason(world: World) -> None:
    held, *_ = world.converge(2).machines
    world.cloud.account.faults.held.add(held.id)
    world.rejected = {held.id: "cuInit error 802"}
    assert "vm-has-not-launched" in world.converge(2).stopped


def test_a_refused_key_is_told_at_once(world: World) -> None:
    world.converge(1)
    fleet = world.fleet()
    machines = fleet.machines()
    world.cloud.key = "another"
    with pytest.raises(ApiError):
        fleet.end(machines)


def test_all_are_looked_for_until_none_is_listed(world: World) -> None:
    world.converge(2)
    world.cloud.account.faults.terminating_seconds = 200
    began = world.now
    done = end_all(world.fleet(), 600, world.told.append, lambda: world.now, world.sleep)
    assert done.left == []
    assert world.now - began >= 200
    assert world.fleet().machines() == []


def test_what_is_ending_for_too_long_is_told(world: World) -> None:
    world.converge(2)
    world.cloud.account.faults.terminating_seconds = 10**6
    done = end_all(world.fleet(), 600, world.told.append, lambda: world.now, world.sleep)
    assert {one.status for one in done.left} == {"terminating"}


def test_one_that_is_up_without_an_address_is_waited_for(world: World) -> None:
    (before,) = world.converge(1).machines
    instance = world.cloud.account.instances[before.id]
    address = instance.pop("ip")
    (found,) = world.fleet().machines()
    assert (found.status, found.address) == ("booting", "")
    instance["ip"] = address
    assert not world.converge(1).changed
