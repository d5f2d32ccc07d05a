"""What instances need beside themselves is there before one is launched, or it is said."""

from __future__ import annotations

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.lambda_surroundings import Surroundings

from .world import EAST, WEST, World


def surroundings(world: World) -> Surroundings:
    fleet = world.fleet()
    return fleet._surroundings


def test_a_firewall_of_the_clusters_own_lets_ssh_in_and_nothing_else(world: World) -> None:
    world.settings = {"ssh_from": ("198.51.100.0/24",)}
    world.converge(2)
    (ruleset,) = world.cloud.account.rulesets.values()
    assert ruleset["name"] == "vllm-ansible-r1"
    assert [(one["port_range"], one["source_network"]) for one in ruleset["rules"]] == [
        ([22, 22], "198.51.100.0/24")
    ]
    assert len(ruleset["instance_ids"]) == 2


def test_rules_that_were_changed_by_hand_are_put_right(world: World) -> None:
    world.converge(1)
    (ruleset,) = world.cloud.account.rulesets.values()
    ruleset["rules"].append({**ruleset["rules"][0], "port_range": [1, 65535]})
    world.converge(2)
    (ruleset,) = world.cloud.account.rulesets.values()
    assert [one["port_range"] for one in ruleset["rules"]] == [[22, 22]]


def test_a_file_system_is_made_once_where_the_first_machine_is(world: World) -> None:
    world.settings = {"file_system": "shared"}
    done = world.converge(2)
    (system,) = world.cloud.account.list_file_systems()
    assert (system["name"], system["region"]["name"], system["is_in_use"]) == ("shared", EAST, True)
    assert done.stopped == ""
    assert not world.converge(2).changed


def test_machines_go_where_their_file_system_is(world: World) -> None:
    world.settings = {"file_system": "shared"}
    world.cloud.account.create_file_system("shared", WEST)
    assert {one.region for one in world.converge(2).machines} == {WEST}


def test_a_file_system_out_of_reach_is_told(world: World) -> None:
    world.settings = {"file_system": "shared"}
    world.cloud.account.create_file_system("shared", "europe-central-1")
    with pytest.raises(PlanError, match="add europe-central-1 to lambda_regions"):
        world.converge(1)
    assert world.slots == []


def test_a_key_that_is_not_there_is_told_with_those_that_are(world: World) -> None:
    world.cloud.account.ssh_keys.clear()
    world.cloud.account.add_ssh_key("miner", "ssh-ed25519 A")
    with pytest.raises(PlanError) as refused:
        world.converge(1)
    (problem,) = refused.value.problems
    assert (problem.found, problem.fix) == ("mine", "did you mean miner?")
    assert problem.where == "lambda_ssh_key_name"
    assert world.cloud.writes == []


def test_a_type_that_is_not_offered_is_told(world: World) -> None:
    del world.cloud.account.types["gpu_1x_gh200"]
    with pytest.raises(PlanError, match="Lambda knows no instance type gpu_1x_gh200"):
        world.converge(1)


def test_a_region_that_lambda_does_not_have_is_told_with_those_that_it_has(world: World) -> None:
    world.settings = {"regions": (EAST, "us-est-3")}
    with pytest.raises(PlanError) as refused:
        world.converge(1)
    (problem,) = refused.value.problems
    assert (problem.expected, problem.fix) == (f"one of {EAST}, {WEST}", f"did you mean {EAST}?")
    assert world.cloud.writes == []


def test_the_firewall_goes_with_the_machines_and_the_file_system_stays(world: World) -> None:
    world.settings = {"file_system": "shared"}
    world.converge(1)
    fleet = world.fleet()
    fleet.end(fleet.machines())
    assert surroundings(world).remove() == [f"vllm-ansible-r1 in {EAST}"]
    assert world.cloud.account.rulesets == {}
    assert [one["name"] for one in world.cloud.account.list_file_systems()] == ["shared"]
