"""What an account pays for and a cluster does not claim."""

from __future__ import annotations

from pathlib import Path

from vllm_ansible.provision.lambda_fleet import machine
from vllm_ansible.provision.lambda_orphans import orphans
from vllm_ansible.provision.lambda_settings import Settings
from vllm_ansible.provision.orphans import Orphan, unknown
from vllm_ansible.provision.slots import hosts

from .world import EAST, GH200, World


def found(world: World, count: int = 2) -> list[Orphan]:
    wanted = Settings("r1", Path("key"), "mine", (GH200,), (EAST,), count)
    return orphans(world.cloud.account.list_instances(), wanted, lambda: world.now)


def test_the_clusters_own_machines_are_none(world: World) -> None:
    world.converge(2)
    assert found(world) == []


def test_machines_of_other_clusters_are_told_with_owner_age_and_price(world: World) -> None:
    world.converge(1, cluster="r2")
    world.now += 2 * 3600
    (one,) = found(world)
    assert (one.cluster, one.owner, round(one.hours or 0, 1)) == ("r2", "ann@here", 2.1)
    assert "of cluster r2, rented by ann@here; gpu_1x_gh200 in us-east-3, $1.49/h, 2.1 h" in (
        one.line()
    )


def test_machines_of_no_slot_are_orphans(world: World) -> None:
    world.converge(3)
    (one,) = found(world)
    assert one.why == "of this cluster, but of no slot (2)"


def test_what_somebody_made_by_hand_is_told_as_such(world: World) -> None:
    body = {"region_name": EAST, "instance_type_name": GH200, "ssh_key_names": ["mine"]}
    world.cloud.account.launch(body)
    (one,) = found(world)
    assert (one.why, one.hours) == ("not rented by vllm-ansible", None)


def test_only_what_the_list_shows_can_be_ended(world: World) -> None:
    world.converge(1, cluster="r2")
    (one,) = found(world)
    assert unknown([one.id, "another"], [one]) == ["another"]


def test_the_machine_that_a_host_is_at_is_never_an_orphan(world: World) -> None:
    """One that is up without an address is up for nobody, so the other one has the slot."""
    world.converge(1)
    (one,) = world.cloud.account.list_instances()
    silent = {**one, "id": "silent", "ip": None}
    wanted = Settings("r1", Path("key"), "mine", (GH200,), (EAST,), 1)
    for listed in ([silent, one], [one, silent]):
        (first,) = hosts(wanted, [machine(each) for each in listed])
        assert first.variables["provision_machine"]["id"] == one["id"]
        assert [each.id for each in orphans(listed, wanted, lambda: world.now)] == ["silent"]
