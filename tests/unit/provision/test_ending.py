"""All machines of a cluster end, and no others."""

from __future__ import annotations

import pytest

from vllm_ansible.provision.ending import Ended, end_all
from vllm_ansible.provision.fleet import ReplyLost

from .world import World


def end(world: World, cluster: str = "r1") -> Ended:
    fleet = world.fleet(cluster)
    return end_all(fleet, 600, world.told.append, lambda: world.now, world.sleep)


def test_everything_of_the_cluster_ends_and_nothing_else(world: World) -> None:
    world.converge(2)
    world.converge(1, cluster="r2")
    done = end(world)
    assert [one.slot for one in done.ended] == [0, 1]
    assert done.left == []
    assert world.slots == ["r2-0"]
    assert end(world).ended == []


def test_a_launch_whose_answer_was_lost_is_waited_for_and_ended(world: World) -> None:
    fleet = world.fleet()
    world.cloud.lose_launch_replies = 1
    (offer, *_) = fleet.offers()
    with pytest.raises(ReplyLost):
        fleet.launch([0], offer)
    assert len(end(world).ended) == 1
    assert world.slots == []
    assert world.fleet().pending is None


def test_a_machine_that_does_not_end_is_told(world: World) -> None:
    world.converge(1)
    account = world.cloud.account
    account.terminate = lambda identities: {"terminated_instances": []}  # type: ignore[method-assign]
    done = end(world)
    assert [one.slot for one in done.left] == [0]
