"""What a region holds that no cluster needs, and how it is removed."""

from __future__ import annotations

from tests.emulators.ec2_account import Account
from vllm_ansible.provision.aws_cluster import AwsCluster
from vllm_ansible.provision.aws_orphans import end_orphans, orphans
from vllm_ansible.provision.fleet import GONE
from vllm_ansible.provision.orphans import counted
from vllm_ansible.provision.slots import hosts

from .aws_world import P5, A, AwsWorld


def test_a_cluster_that_is_whole_leaves_nothing_to_list(aws: AwsWorld) -> None:
    aws.settings["public_address"] = True
    aws.converge()
    assert orphans(aws.api, aws.wanted(), lambda: aws.now) == []


def test_machines_of_others_are_listed_with_owner_age_and_price(aws: AwsWorld) -> None:
    aws.settings["prices"] = {P5: 5000}
    first, second = aws.converge().machines
    one, other = (aws.cloud.account.machines[each.id] for each in (first, second))
    one["Tags"] = []
    tags = {tag["Key"]: tag for tag in other["Tags"]}
    tags["vllm-ansible:cluster"]["Value"] = "r2"
    aws.now += 7200
    found = orphans(aws.api, aws.wanted(), lambda: aws.now)
    lines = {each.id: each.line() for each in found if each.kind == "instance"}
    assert "not rented by vllm-ansible" in lines[first.id]
    assert (
        f"of cluster r2, rented by ann@here; {P5} in {A}, $50.00/h, 2.0 h, $100.00 so far"
        in (lines[second.id])
    )


def test_what_a_cluster_without_machines_has_left_is_listed_and_removed_by_id(
    aws: AwsWorld,
) -> None:
    aws.settings["public_address"] = True
    machines = aws.converge().machines
    volume = next(iter(aws.cloud.account.volumes.values()))
    aws.fleet().end(machines)
    # A volume that outlived its machine, as after a change in the console.
    volume |= {"State": "available", "Attachments": []}
    aws.cloud.account.volumes[volume["VolumeId"]] = volume
    assert {one.status for one in aws.fleet().machines()} <= GONE
    found = orphans(aws.api, aws.wanted(), lambda: aws.now)
    assert sorted(one.kind for one in found) == [
        "elastic address",
        "elastic address",
        "key pair",
        "placement group",
        "security group",
        "volume",
    ]
    assert all("of this cluster, which has no machine" in one.line() for one in found)
    assert "price unknown" in found[0].line()
    assert counted(found) == "6 resources"
    ids = [one.id for one in found]
    assert end_orphans(aws.api, ids) == set(ids)
    assert orphans(aws.api, aws.wanted(), lambda: aws.now) == []
    assert aws.cloud.account.volumes == {} and aws.cloud.account.network.addresses == {}


def test_a_second_machine_of_a_slot_is_ended_by_its_id(aws: AwsWorld) -> None:
    first, second = aws.converge().machines
    aws.fleet().move(second, first.slot)
    (double,) = orphans(aws.api, aws.wanted(), lambda: aws.now)
    assert "whose slot 0 has a machine already" in double.line()
    end_orphans(aws.api, [double.id])
    assert len(aws.cloud.account.paid_for) == 1


def test_the_machine_that_a_host_is_at_is_never_an_orphan(aws: AwsWorld) -> None:
    """One that is up without an address is up for nobody, so the other one has the slot."""
    one, other = aws.converge().machines
    aws.fleet().move(other, one.slot)
    aws.cloud.account.machines[other.id]["PublicIpAddress"] = "203.0.113.9"
    aws.settings["public_address"] = True
    machines = AwsCluster(aws.wanted(), aws.directory / "state").machines()
    found = orphans(aws.api, aws.wanted(), lambda: aws.now)
    first = hosts(aws.wanted(), machines)[0].variables
    assert first["provision_machine"]["id"] == other.id
    assert [each.id for each in found if each.kind == "instance"] == [one.id]


def test_all_regions_of_the_account_are_looked_at_and_what_is_there_is_ended(
    aws: AwsWorld,
) -> None:
    """A machine of this cluster in another region has no slot, and nobody would end it."""
    aws.converge()
    (asked,) = aws.sent("RunInstances")
    west = Account({(P5, A): 4}, lambda: aws.now)
    group = west.network.create_security_group(
        {"GroupName": "g", "Description": "d", "VpcId": "vpc-1"}
    )["GroupId"]
    west.network.keys[asked["KeyName"]] = {"KeyName": asked["KeyName"]}
    interfaces = [{**one, "Groups": [group]} for one in asked["NetworkInterfaces"]]
    left = west.run_instances({**asked, "NetworkInterfaces": interfaces, "Placement": {}})
    aws.cloud.regions["us-west-2"] = west
    aws.cloud.account.offers.regions.append("us-west-2")
    cluster = AwsCluster(aws.wanted(), aws.directory / "state")
    found = [one for one in cluster.orphans() if one.kind == "instance"]
    ids = [one["InstanceId"] for one in left["Instances"]]
    assert [one.id for one in found] == sorted(ids)
    assert {one.why for one in found} == {
        f"of this cluster, but of no slot ({slot})" for slot in (0, 1)
    }
    assert cluster.end_orphans([*ids, "i-gone"]) == set(ids)
    assert west.paid_for == [] and len(aws.cloud.account.paid_for) == 2


def test_a_region_that_a_policy_denies_hides_none_of_the_others(aws: AwsWorld) -> None:
    """Policies of organizations often allow one region alone."""
    aws.converge()
    aws.settings["count"] = 1
    aws.cloud.account.offers.regions.append("eu-south-1")  # and what is asked there is refused
    cluster = AwsCluster(aws.wanted(), aws.directory / "state")
    (found,) = [one for one in cluster.orphans() if one.kind == "instance"]
    assert cluster.unseen == ["eu-south-1: AWS refused: You are not subscribed to this region."]
    assert cluster.end_orphans([found.id]) == {found.id}
    assert len(aws.cloud.account.paid_for) == 1


def test_without_the_list_of_regions_the_own_one_is_looked_at(aws: AwsWorld) -> None:
    aws.converge()
    aws.settings["count"] = 1
    aws.cloud.account.faults.denied.add("DescribeRegions")
    cluster = AwsCluster(aws.wanted(), aws.directory / "state")
    assert [one.kind for one in cluster.orphans()] == ["instance"]
    (unseen,) = cluster.unseen
    assert unseen.startswith("other regions: AWS refused: You are not authorized")
    assert "Encoded" not in unseen
