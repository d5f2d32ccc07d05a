"""Machines at AWS, from nothing to all of them and back, against the emulated EC2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulators.ec2_parts import PARAMETER
from vllm_ansible.node.system import machine_end
from vllm_ansible.problem import PlanError
from vllm_ansible.provision.aws_api import AwsError
from vllm_ansible.provision.aws_cluster import AwsCluster
from vllm_ansible.provision.convergence import Outcome
from vllm_ansible.provision.ending import end_all
from vllm_ansible.provision.fleet import ReplyLost, Wish
from vllm_ansible.provision.noticed import ends
from vllm_ansible.provision.own_end import LATE_SECONDS
from vllm_ansible.provision.provider import provider
from vllm_ansible.provision.slots import hosts
from vllm_ansible.provision.words import told

from .aws_world import B300, P5, SMALL, A, AwsWorld, B


def tags(machine: dict[str, Any]) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in machine["Tags"]}


def test_all_machines_are_launched_at_once_in_one_group_with_every_card(aws: AwsWorld) -> None:
    aws.cloud.account.faults.boot_seconds = 100
    done = aws.converge()
    assert [(one.slot, one.region, one.status) for one in done.machines] == [
        (0, A, "active"),
        (1, A, "active"),
    ]
    assert done.launched == [0, 1]
    (asked,) = aws.sent("RunInstances")
    assert (asked["MinCount"], asked["MaxCount"]) == (2, 2)
    cards = [
        (one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"])
        for one in asked["NetworkInterfaces"]
    ]
    assert cards[:3] == [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only")]
    assert len(cards) == 33
    assert asked["Placement"]["GroupName"] == f"vllm-ansible-r1-{A}"
    assert "UserData" not in asked and asked["MetadataOptions"]["HttpTokens"] == "required"
    for one in aws.cloud.account.machines.values():
        assert tags(one)["vllm-ansible:slots"] == "0,1"
        assert tags(one)["vllm-ansible:owner"] == "ann@here"
        assert tags(one)["vllm-ansible:launch"] == asked["ClientToken"]
    assert aws.fleet().pending is None
    assert aws.cloud.misfits == []


def test_a_second_run_writes_nothing(aws: AwsWorld) -> None:
    aws.converge()
    before = list(aws.cloud.writes)
    done = aws.converge()
    assert not done.changed and len(done.machines) == 2
    assert aws.cloud.writes == before


def test_the_group_is_open_to_itself_both_ways_and_to_ssh_from_the_range(aws: AwsWorld) -> None:
    aws.converge()
    (group,) = aws.cloud.account.network.groups.values()
    own = [{"GroupId": group["GroupId"]}]
    assert {"IpProtocol": "-1", "UserIdGroupPairs": own} in group["IpPermissions"]
    assert {"IpProtocol": "-1", "UserIdGroupPairs": own} in group["IpPermissionsEgress"]
    aws.settings["ssh_from"] = ("203.0.113.0/24",)
    surroundings = aws.surroundings()
    surroundings.ready(A)
    ssh = [one for one in group["IpPermissions"] if one["IpProtocol"] == "tcp"]
    assert [one["CidrIp"] for each in ssh for one in each["IpRanges"]] == ["203.0.113.0/24"]
    assert surroundings.changed == ["rules of security group vllm-ansible-r1"]


def test_a_zone_without_room_is_followed_by_the_next(aws: AwsWorld) -> None:
    aws.cloud.account.room[P5, A] = 1
    done = aws.converge()
    assert {one.region for one in done.machines} == {B}
    codes = [code for name, code in aws.cloud.log if name == "RunInstances"]
    assert codes == ["InsufficientInstanceCapacity", "OK"]


def test_a_zone_that_was_empty_is_asked_again_once_a_minute(aws: AwsWorld) -> None:
    aws.settings["zones"] = (A,)
    aws.cloud.account.room[P5, A] = 1
    done = aws.converge(limit=300.0)
    assert "nothing has moved for 5 minutes: capacity for slot 0" in done.stopped
    assert len(aws.sent("RunInstances")) in (5, 6)
    assert aws.fleet().pending is None and aws.cloud.account.paid_for == []


def test_a_lost_answer_is_asked_again_with_the_same_words(aws: AwsWorld) -> None:
    aws.cloud.account.faults.lost["RunInstances"] = 2
    done = aws.converge()
    assert len(done.machines) == 2
    first, second, third = aws.sent("RunInstances")
    assert first == second == third
    assert len(aws.cloud.account.machines) == 2


def test_a_run_that_was_killed_while_it_launched_is_taken_up_with_its_token(aws: AwsWorld) -> None:
    """Carried out, answered to nobody, and not listed for minutes: no machine comes twice."""
    faults = aws.cloud.account.faults
    faults.lost["RunInstances"], faults.late_seconds = 5, 200
    fleet = aws.fleet()
    with pytest.raises(ReplyLost):
        fleet.launch((0, 1), fleet.offers()[0])
    # Another process finds the note.
    done = aws.converge()
    assert len(done.machines) == len(aws.cloud.account.machines) == 2
    tokens = {one["ClientToken"] for one in aws.sent("RunInstances")}
    assert len(tokens) == 1


def test_a_launch_that_may_have_been_made_is_remembered_where_asking_again_is_refused(
    aws: AwsWorld,
) -> None:
    faults = aws.cloud.account.faults
    faults.lost["RunInstances"], faults.late_seconds = 5, 200
    fleet = aws.fleet()
    with pytest.raises(ReplyLost):
        fleet.launch((0, 1), fleet.offers()[0])
    faults.throttled["RunInstances"] = 5
    with pytest.raises(AwsError, match="RequestLimitExceeded"):
        aws.converge()
    assert len(aws.converge().machines) == len(aws.cloud.account.machines) == 2
    assert len({one["ClientToken"] for one in aws.sent("RunInstances")}) == 1


def test_a_note_of_a_launch_that_never_arrived_brings_machines_by_the_same_token(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = aws.fleet()
    offer = fleet.offers()[0]

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "_send", killed)
    with pytest.raises(KeyboardInterrupt):
        fleet.launch((0, 1), offer)
    pending = aws.fleet().pending
    assert pending is not None and aws.cloud.account.paid_for == []
    began = aws.now
    done = aws.converge()
    assert len(done.machines) == 2 and aws.now - began < 30
    assert [one["ClientToken"] for one in aws.sent("RunInstances")] == [pending.launch]


def test_a_note_that_nobody_wants_any_more_launches_nothing(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = aws.fleet()
    offer = fleet.offers()[0]
    monkeypatch.setattr(fleet, "_send", lambda *_: "")
    fleet.launch((0, 1), offer)
    aws.settings["count"] = 1
    done = aws.converge()
    assert len(done.machines) == len(aws.cloud.account.paid_for) == 1


def test_machines_that_no_list_shows_yet_are_waited_for(aws: AwsWorld) -> None:
    aws.cloud.account.faults.late_seconds = 240
    done = aws.converge()
    assert len(done.machines) == 2 and len(aws.cloud.account.machines) == 2


def test_throttled_launches_are_asked_again(aws: AwsWorld) -> None:
    aws.cloud.account.faults.throttled["RunInstances"] = 3
    assert len(aws.converge().machines) == 2
    assert len({one["ClientToken"] for one in aws.sent("RunInstances")}) == 1


@pytest.mark.parametrize("fault", ["vcpus", "spot_vcpus"])
def test_a_full_quota_stops_at_once_and_leaves_no_note(aws: AwsWorld, fault: str) -> None:
    setattr(aws.cloud.account.faults, fault, 192)
    aws.settings["market"] = "spot" if fault == "spot_vcpus" else "on_demand"
    code = "MaxSpotInstanceCountExceeded" if fault == "spot_vcpus" else "VcpuLimitExceeded"
    with pytest.raises(AwsError) as refused:
        aws.converge()
    assert refused.value.code == code
    assert aws.fleet().pending is None and aws.cloud.account.paid_for == []


def test_machines_that_end_at_once_are_not_launched_for_ever(aws: AwsWorld) -> None:
    aws.cloud.account.faults.stillborn = "Client.InternalError"
    with pytest.raises(AwsError, match=r"ended as soon as it was launched: Client.InternalError"):
        aws.converge()
    assert len(aws.sent("RunInstances")) == 1 and aws.cloud.account.paid_for == []


def test_room_that_was_gone_after_all_is_looked_for_in_the_next_zone(aws: AwsWorld) -> None:
    faults = aws.cloud.account.faults
    faults.stillborn = "Server.InsufficientInstanceCapacity"
    fleet = aws.fleet()
    fleet.launch((0, 1), fleet.offers()[0])
    faults.stillborn = ""
    assert {one.region for one in aws.converge(fleet=fleet).machines} == {B}


def test_an_impaired_machine_that_serves_nobody_is_replaced(aws: AwsWorld) -> None:
    done = aws.converge()
    bad = done.machines[1].id
    aws.cloud.account.faults.impaired.add(bad)
    done = aws.converge(unjudged=lambda _: True)
    assert [one.id for one, why in done.ended] == [bad]
    assert [one.slot for one in done.machines] == [0, 1]
    # It is launched for its slot alone, into the group of the others.
    last = aws.sent("RunInstances")[-1]
    assert last["MaxCount"] == 1
    assert last["Placement"]["GroupName"] == f"vllm-ansible-r1-{A}"


def test_machines_are_ended_whatever_else_the_account_may_not_ask(aws: AwsWorld) -> None:
    aws.settings |= {"market": "spot"}
    done = aws.converge()
    faults = aws.cloud.account.faults
    faults.denied |= {"DescribeInstanceStatus", "DescribeSpotInstanceRequests"}
    assert [one.status for one in aws.fleet().machines()] == ["active"] * len(done.machines)
    gone = end_all(aws.fleet(), 600, aws.told.append, lambda: aws.now, aws.sleep)
    assert len(gone.ended) == len(done.machines) and not gone.left


def test_a_spare_takes_a_slot_by_its_tag(aws: AwsWorld) -> None:
    aws.settings["spares"] = 1
    done = aws.converge()
    lost = next(one for one in done.machines if one.slot == 0)
    aws.rejected[lost.id] = "memory differs"
    done = aws.converge()
    assert done.taken == [(0, 2)]
    assert sorted(one.slot for one in done.machines) == [0, 1, 2]
    assert len(aws.sent("CreateTags")) == 1


def test_spot_machines_that_are_taken_back_are_seen_before_they_end(aws: AwsWorld) -> None:
    aws.settings["market"] = "spot"
    one = aws.converge().machines[0]
    aws.cloud.account.interrupt(one.id)
    assert {each.id: each.status for each in aws.fleet().machines()}[one.id] == "preempted"
    aws.now += 121
    assert {each.id: each.status for each in aws.fleet().machines()}[one.id] == "terminated"
    done = aws.converge()
    assert len(done.machines) == 2
    summary = told(provider("aws"), done, Wish(2), None, aws.now)["evidence"]["summary"]
    assert summary.endswith(
        "the machine that slot 0 had was interrupted by AWS, as spot machines are"
    )


def test_a_run_within_the_two_minutes_waits_for_the_end_and_replaces_the_machine(
    aws: AwsWorld,
) -> None:
    aws.settings["market"] = "spot"
    one = aws.converge().machines[0]
    aws.cloud.account.interrupt(one.id)
    done = aws.converge()
    assert done.stopped == "" and len(done.machines) == 2
    assert one.id not in {each.id for each in done.machines}
    summary = told(provider("aws"), done, Wish(2), None, aws.now)["evidence"]["summary"]
    assert "the machine that slot 0 had was interrupted by AWS" in summary


def test_a_type_whose_first_card_has_no_fabric_gets_it_on_the_others(aws: AwsWorld) -> None:
    aws.settings["types"] = (B300,)
    aws.converge()
    (asked,) = aws.sent("RunInstances")
    kinds = [one["InterfaceType"] for one in asked["NetworkInterfaces"]]
    assert kinds == ["interface"] + ["efa-only"] * 16


def test_addresses_of_the_internet_are_given_once_machines_run(aws: AwsWorld) -> None:
    aws.settings["public_address"] = True
    aws.cloud.account.faults.boot_seconds = 60
    done = aws.converge()
    assert sorted(one.address for one in done.machines) == ["203.0.113.1", "203.0.113.2"]
    before = list(aws.cloud.writes)
    aws.converge()
    assert aws.cloud.writes == before


def test_one_interface_gets_its_address_at_launch(aws: AwsWorld) -> None:
    aws.settings |= {"public_address": True, "types": (SMALL,)}
    done = aws.converge()
    assert [one.address for one in done.machines] == ["198.51.100.1", "198.51.100.2"]
    assert aws.sent("AllocateAddress") == []


def test_a_capacity_block_takes_no_group_and_says_when_it_ends(aws: AwsWorld) -> None:
    account = aws.cloud.account
    block = account.reserve(P5, B, 2, block_end=aws.now + 86400)
    aws.settings |= {"market": "capacity_block", "reservation": block}
    done = aws.converge()
    assert {one.region for one in done.machines} == {B}
    (asked,) = aws.sent("RunInstances")
    assert "Placement" not in asked
    assert asked["InstanceMarketOptions"]["MarketType"] == "capacity-block"
    # Half an hour before the block is over, EC2 begins to end what runs in it.
    aws.now += 86400 - 1800
    assert {one.status for one in aws.fleet().machines()} == {"terminated"}
    assert account.paid_for == []


def test_the_end_of_a_block_is_told_and_known_of_each_host(aws: AwsWorld) -> None:
    block = aws.cloud.account.reserve(P5, A, 2, block_end=aws.now + 86400)
    aws.settings |= {"market": "capacity_block", "reservation": block}
    aws.converge()
    machines = AwsCluster(aws.wanted(), aws.directory / "state").machines()
    block_ends = f"2 x {P5} in {A}, price unknown; AWS ends them from 1970-01-13 13:16 UTC on"
    # Whichever is first: max_hours, or half an hour before the end of the block.
    for limit, hours in ((None, 23.0), (8 * 3600.0, 7.5), (30 * 3600.0, 23.0)):
        left = None if limit is None else limit - 1800
        done = told(provider("aws"), Outcome(machines=machines), Wish(2), left, aws.now + 1800)
        summary = done["evidence"]["summary"]
        assert summary == f"{block_ends}; ended in {hours:.1f} h at the latest"
    for host in hosts(aws.wanted(), machines):
        assert host.variables["provision_machine"]["ends_at"] == aws.now + 86400 - 1800
    aws.now += 86400 - 1800
    cluster = AwsCluster(aws.wanted(), aws.directory / "state")
    assert ends("AWS", True, "r1", cluster.machines(), aws.now) == [
        f"r1-{one.slot} ({one.id}) was ended by AWS with its capacity block" for one in machines
    ]
    with pytest.raises(PlanError) as refused:
        aws.surroundings().checked()
    assert refused.value.problems[0].expected == "one that is active, not expired"


def test_the_image_may_be_named_by_a_parameter(aws: AwsWorld) -> None:
    aws.settings["image"] = PARAMETER
    aws.converge()
    assert aws.sent("RunInstances")[0]["ImageId"].startswith("ami-")


def test_the_end_leaves_nothing_to_pay_for(aws: AwsWorld) -> None:
    aws.settings["public_address"] = True
    faults = aws.cloud.account.faults
    faults.terminating_seconds = 90
    aws.converge()
    done = end_all(aws.fleet(), 600, aws.told.append, lambda: aws.now, aws.sleep)
    assert len(done.ended) == 2 and not done.left
    removed = aws.surroundings().remove()
    assert {one.rpartition(" ")[0] for one in removed} == {
        "elastic address",
        "security group",
        "placement group",
        "key pair",
    }
    account, network = aws.cloud.account, aws.cloud.account.network
    assert account.paid_for == [] and account.volumes == {}
    assert network.groups == network.placements == network.keys == network.addresses == {}
    assert aws.cloud.misfits == []


def test_what_aws_does_not_end_keeps_nobody_from_ending_the_rest(aws: AwsWorld) -> None:
    first, _ = aws.converge().machines
    aws.cloud.account.faults.protected.add(first.id)
    done = end_all(aws.fleet(), 60, aws.told.append, lambda: aws.now, aws.sleep)
    assert f"{first.id}: The instance '{first.id}' may not be terminated" in done.refused
    assert aws.cloud.account.paid_for == [first.id]


@pytest.mark.parametrize("market", ["on_demand", "spot"])
def test_machines_that_nobody_ends_end_themselves_some_time_after_the_limits(
    aws: AwsWorld, market: str
) -> None:
    aws.settings |= {"max_seconds": 7200.0, "market": market}
    began = aws.now
    aws.converge()
    account = aws.cloud.account
    timer = machine_end.timer("r1", began + 7200 + LATE_SECONDS)
    assert [timer in one for one in account.user_data.values()] == [True, True]
    # Nobody is left but the machines, which do as the timer says.
    for one in list(account.machines):
        account.shut_down(one)
    assert account.paid_for == [] and aws.cloud.misfits == []
    aws.sleep(60)
    assert {one.status for one in aws.fleet().machines()} <= {"terminating", "terminated"}


def test_what_they_cost_ends_them_too_and_the_first_limit_counts(aws: AwsWorld) -> None:
    # 2 machines at $50.00: $300 are 3 hours.
    aws.settings |= {"max_seconds": 7 * 3600.0, "max_cents": 30000, "prices": {P5: 5000}}
    began = aws.now
    aws.converge()
    timer = machine_end.timer("r1", began + 3 * 3600 + LATE_SECONDS)
    assert [timer in one for one in aws.cloud.account.user_data.values()] == [True, True]


@pytest.mark.parametrize("more", [{}, {"max_seconds": 7200.0, "privileges": "none"}])
def test_without_a_limit_or_root_nothing_ends_a_machine_from_within(
    aws: AwsWorld, more: dict[str, Any]
) -> None:
    aws.settings |= more
    aws.converge()
    (asked,) = aws.sent("RunInstances")
    assert "UserData" not in asked
    # And one that somebody shuts down is ended, not stopped and paid for.
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
