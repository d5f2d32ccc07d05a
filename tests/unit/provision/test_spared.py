"""Machines that may serve are never ended for how they are listed, whoever rented them."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from vllm_ansible.provision.fleet import (
    BOOTING,
    READY,
    Complete,
    End,
    Machine,
    Offer,
    Seen,
    Spare,
    Wait,
    Wish,
    next_step,
)

from .rental import Site, machines
from .world import EAST, GH200, World

OFFER = Offer(GH200, EAST, 149, available=True)
NOW = 1_000_000.0
DAY = 86400.0


def machine(
    slot: int, status: str = READY, identity: str = "", since: float = NOW - DAY
) -> Machine:
    return Machine(identity or f"m{slot}", slot, status, GH200, EAST, 149, "l", since)


def step(*found: Machine, ours: tuple[str, ...] = (), waited: float = 0.0) -> Any:
    down = {one.id: NOW - waited for one in found if one.status != READY}
    seen = Seen(frozenset(ours), down)
    return next_step(Wish(len({one.slot for one in found})), found, [OFFER], None, {}, NOW, seen)


@pytest.mark.parametrize("status", [BOOTING, "unhealthy", "preempted"])
@pytest.mark.parametrize("since", [NOW - DAY, 0.0])
def test_a_machine_that_may_serve_is_waited_for_and_never_ended(status: str, since: float) -> None:
    found = (machine(0), machine(1, status, since=since))
    assert isinstance(step(*found), Wait)
    late = step(*found, waited=1801)
    assert isinstance(late, Spare)
    assert [one.id for one in late.machines] == ["m1"]


def test_one_that_this_run_launched_is_ended_by_what_this_run_saw_of_it() -> None:
    # A day old by its tag, without one, and listed for the first time just now.
    for since in (NOW - DAY, 0.0):
        found = machine(0, BOOTING, since=since)
        assert isinstance(step(found, ours=("m0",)), Wait)
        late = step(found, ours=("m0",), waited=1801)
        assert isinstance(late, End) and late.why == "still booting after 30 minutes"
    assert isinstance(step(machine(0, "unhealthy"), ours=("m0",)), End)


def test_of_two_machines_of_a_slot_only_one_that_cannot_serve_is_ended() -> None:
    first, second = machine(0, identity="a"), machine(0, identity="b", since=NOW)
    both = step(first, second)
    assert isinstance(both, Complete)
    assert [one.id for one in (*both.machines, *both.surplus)] == ["a", "b"]
    # Ours is the one that goes, though it is the older one.
    assert step(first, second, ours=("a",)) == End(first, "slot 0 has a machine already")
    assert step(first, second, ours=("b",)) == End(second, "slot 0 has a machine already")


@pytest.mark.parametrize("change", ["no address", BOOTING, "unhealthy"])
def test_a_later_run_ends_nothing_for_what_a_list_says(world: World, change: str) -> None:
    before = world.converge(3)
    world.now += DAY
    instance = world.cloud.account.instances[before.machines[1].id]
    if change == "no address":
        instance.pop("ip")
    else:
        instance["status"] = change
    done = world.converge(3)
    assert done.ended == []
    assert [one.id for one in done.spared] == [before.machines[1].id]
    assert world.slots == ["r1-0", "r1-1", "r1-2"]


def test_one_list_that_lacks_an_address_is_waited_out(world: World) -> None:
    (before,) = world.converge(1).machines
    world.now += DAY
    instance = world.cloud.account.instances[before.id]
    address = instance.pop("ip")
    sleep = world.sleep

    def back(seconds: float) -> None:
        sleep(seconds)
        instance["ip"] = address

    world.sleep = back  # type: ignore[method-assign]
    done = world.converge(1)
    assert (done.stopped, done.changed) == ("", False)
    assert [one.id for one in done.machines] == [before.id]


def _unwell(site: Site) -> str:
    """Have one machine listed as unhealthy, and return its id."""
    instance = list(site.cloud.account.instances.values())[1]
    instance["status"] = "unhealthy"
    return str(instance["id"])


@pytest.mark.parametrize("lost", [True, False], ids=["fresh clone", "accepted here"])
def test_a_play_ends_no_machine_that_may_serve_and_says_so(site: Site, lost: bool) -> None:
    found = site(machines("rent"))["rent"]["machines"]
    state = site.directory / "state"
    if lost:
        shutil.rmtree(state)
    else:
        (state / "r1/accepted").mkdir()
        for one in found:
            (state / f"r1/accepted/{one['id']}.json").write_text('{"told": "fit"}')
    identity = _unwell(site)
    told = site(machines("again", boot_seconds=1))["again"]
    assert told["failed"] and told["ended"] == []
    assert f"slot 1 ({identity}, 198.51.100.2) is unhealthy" in told["msg"]
    assert "it may serve: it is not ended for that" in told["msg"]
    assert "playbooks/replace.yml" in told["msg"]
    assert site.paid_for == ["r1-0", "r1-1"]
    assert site.cloud.writes.count("/api/v1/instance-operations/terminate") == 0
    # By name it is.
    named = site(machines("named", rejected={identity: "given back by name"}))["named"]
    assert [one["id"] for one in named["ended"]] == [identity]


def test_one_that_was_launched_here_and_never_judged_is_replaced(site: Site) -> None:
    site(machines("rent"))
    identity = _unwell(site)
    told = site(machines("again"))["again"]
    assert [one["id"] for one in told["ended"]] == [identity]


def test_a_machine_that_no_slot_needs_stops_no_run() -> None:
    """As after node_count was lowered, or beside the machine that serves in its slot."""
    for odd in (machine(1, "unhealthy"), machine(0, BOOTING, "double")):
        down = {odd.id: NOW - 1801}
        found = next_step(
            Wish(1), (machine(0), odd), [OFFER], None, {}, NOW, Seen(frozenset(), down)
        )
        assert isinstance(found, Complete)
        assert [one.id for one in found.surplus] == [odd.id]
