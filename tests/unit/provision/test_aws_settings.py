"""What an inventory of AWS says, read and refused without asking anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.aws_reading import READ, settings
from vllm_ansible.provision.aws_types import DEVICES, interfaces

from .aws_world import B300, P5, SMALL, A, B

GIVEN: dict[str, Any] = {
    "cluster_name": "r1",
    "aws_region": "us-east-2",
    "aws_zones": [A, B],
    "aws_instance_types": [P5],
    "aws_ami": "ami-0123456789abcdef0",
    "aws_ssh_key_name": "mine",
    "aws_ssh_from": ["198.51.100.7/32"],
    "node_count": 2,
}
BLOCK = {"aws_market": "capacity_block", "aws_capacity_reservation": "cr-0123456789abcdef0"}


def test_values_are_taken_as_they_come_from_a_file_or_a_command_line() -> None:
    said = GIVEN | {
        "node_count": "2",
        "aws_public_address": "true",
        "aws_root_gib": "500",
        "aws_usd_per_hour": {P5: 55.04},
        "max_usd_per_hour": "120",
        "max_hours": 8,
    }
    found = settings(said, "here")
    assert (found.count, found.public_address, found.root_gib) == (2, True, 500)
    assert (found.prices, found.max_cents_per_hour) == ({P5: 5504}, 12000)
    assert found.max_seconds == 8 * 3600
    assert set(said) <= set(READ)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"aws_region": ""}, "aws_region is not set"),
        ({"aws_zones": []}, "aws_zones is []"),
        ({"aws_zones": ["us-west-2a"]}, "a zone of us-east-2"),
        ({"aws_instance_types": ["p5"]}, "aws_instance_types is ['p5']"),
        ({"aws_ami": "latest"}, "aws_ami is 'latest'"),
        ({"node_count": 0}, "node_count is 0"),
        ({"node_count": "two"}, "node_count is 'two'"),
        ({"aws_market": "cheap"}, "one of on_demand, spot, capacity_reservation"),
        ({"aws_market": "capacity_block"}, "aws_capacity_reservation is ''"),
        ({"aws_capacity_reservation": "cr-0123"}, "with no other"),
        (BLOCK | {"aws_placement_group": "mine"}, "none in a capacity block"),
        ({"aws_ssh_key_name": ""}, "neither of aws_ssh_key_name and aws_ssh_public_key_file"),
        ({"aws_ssh_public_key_file": "~/k.pub"}, "both of aws_ssh_key_name"),
        ({"aws_ssh_from": []}, "the machines could not be reached"),
        ({"aws_ssh_from": ["everywhere"]}, "aws_ssh_from is ['everywhere']"),
        ({"aws_usd_per_hour": {P5: 0}}, "each above 0"),
        ({"aws_public_address": "perhaps"}, "true or false"),
        ({"max_usd_per_hour": 100}, f"the price of {P5} is not known"),
        ({"max_cost": 100}, "max_cost is set"),
        ({"max_hours": -1}, "max_hours is -1"),
        ({"cluster_name": "R 1"}, "cluster_name is 'R 1'"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as refused:
        settings(GIVEN | change, "here")
    told = [f"{one.message}; {one.expected}; {one.fix}" for one in refused.value.problems]
    assert any(words in one for one in told), told
    assert {one.where for one in refused.value.problems} == {"here"}


def test_a_name_with_a_slip_is_found() -> None:
    said = {name: value for name, value in GIVEN.items() if name != "aws_region"}
    with pytest.raises(PlanError, match="aws_region is not set") as refused:
        settings(said | {"aws_regoin": "us-east-2"}, "here")
    assert "aws_regoin" in refused.value.problems[0].fix


def test_a_prepaid_block_needs_no_price() -> None:
    assert settings(GIVEN | BLOCK | {"max_usd_per_hour": 9}, "here").market == "capacity_block"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "No such file"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "a private key"),
        ("", "0 lines"),
    ],
)
def test_only_a_public_key_leaves_this_machine(
    tmp_path: Path, text: str | None, found: str
) -> None:
    path = tmp_path / "key.pub"
    if text is not None:
        path.write_text(text)
    said = GIVEN | {"aws_ssh_key_name": "", "aws_ssh_public_key_file": str(path)}
    with pytest.raises(PlanError) as refused:
        settings(said, "here").ready()
    assert found in refused.value.problems[0].found


def test_what_watches_the_limits_reads_the_same_from_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    said = GIVEN | {"aws_ssh_key_name": "", "aws_ssh_public_key_file": "key.pub"}
    kept = settings(said | {"aws_owner": "team-a"}, "here").pinned()
    assert kept == {
        "aws_owner": "team-a",
        "aws_profile": "work",
        "aws_ssh_public_key_file": str(Path("key.pub").absolute()),
    }


def test_types_have_the_devices_that_ec2_describes() -> None:
    for kind, (count, model) in DEVICES.items():
        (gpus,) = INSTANCE_TYPES[kind]["GpuInfo"]["Gpus"]
        memory = gpus["MemoryInfo"]["SizeInMiB"] / 1024
        assert gpus["Count"] == count, kind
        name, _, size = model.partition("-")
        assert name == gpus["Name"].split("-")[0], kind
        assert not size or abs(float(size) - memory) < 1, kind


@pytest.mark.parametrize(
    ("kind", "count", "on_first_card"),
    [(P5, 33, 2), ("p5en.48xlarge", 17, 2), (B300, 17, 1), ("p4d.24xlarge", 5, 2), (SMALL, 1, 1)],
)
def test_every_card_gets_its_fabric(kind: str, count: int, on_first_card: int) -> None:
    found = interfaces(INSTANCE_TYPES[kind], "subnet-1", ["sg-1"], public=True)
    assert len(found) == count
    assert [one["NetworkCardIndex"] for one in found].count(0) == on_first_card
    assert [one["InterfaceType"] for one in found].count("interface") == 1
    # EC2 takes it beside no other interface.
    assert ("AssociatePublicIpAddress" in found[0]) is (count == 1)
    assert all(one["DeleteOnTermination"] for one in found)
