"""What is refused before anything is launched, and what is said where AWS refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulators.ec2_network import DESCRIPTION
from tests.emulators.ec2_parts import AMI, SUBNET
from vllm_ansible.problem import PlanError
from vllm_ansible.provision.aws_api import AwsApi, AwsError, Unreachable
from vllm_ansible.provision.aws_words import words

from .aws_world import P5, SMALL, A, AwsWorld, B


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"types": ("p5.49xlarge",)}, "aws_instance_types is p5.49xlarge"),
        ({"zones": ("us-east-2f",)}, "one of us-east-2a, us-east-2b"),
        ({"zones": ("us-east-2c",)}, f"a zone that offers {P5}"),
        ({"subnets": ("subnet-00",)}, "The subnet ID 'subnet-00' does not exist"),
        ({"subnets": (SUBNET.format(1),)}, f"a subnet in {A}"),
        ({"image": "ami-00"}, "ids differ by region"),
        ({"image": "/no/such/parameter"}, "aws_ami is /no/such/parameter"),
        ({"root_gib": 50}, "75 or more"),
        ({"public_key_file": None, "ssh_key": "mime"}, "aws_ssh_key_name is mime"),
        ({"security_group": "sg-00"}, "aws_security_group is sg-00"),
        ({"placement_group": "mine"}, "aws_placement_group is mine"),
        (
            {"market": "capacity_block", "reservation": "cr-00"},
            "aws_capacity_reservation is cr-00",
        ),
    ],
)
def test_what_does_not_exist_is_said_before_a_launch(
    aws: AwsWorld, change: dict[str, Any], said: str
) -> None:
    aws.settings |= change
    with pytest.raises(PlanError) as refused:
        aws.converge()
    told = [f"{one.message}; {one.expected}" for one in refused.value.problems]
    assert any(said in one for one in told), told
    assert aws.cloud.writes == [] and aws.cloud.misfits == []


def test_an_image_for_another_processor_is_refused(aws: AwsWorld) -> None:
    aws.cloud.account.network.images[AMI]["Architecture"] = "arm64"
    with pytest.raises(PlanError) as refused:
        aws.converge()
    assert f"x86_64, which {P5} runs, not for arm64" in refused.value.problems[0].expected


@pytest.mark.parametrize(
    ("families", "refused"),
    [
        ("G3 (G3.16x not supported), P3dn, P4d", True),
        ("G6, P50, P5-B300", True),
        ("G4dn, P5", False),
        ("G4dn, P5, P6-B300", False),
    ],
)
def test_an_image_whose_driver_does_not_support_the_type_is_refused(
    aws: AwsWorld, families: str, refused: bool
) -> None:
    image = aws.cloud.account.network.images[AMI]
    image["Description"] = DESCRIPTION.format(families)
    if not refused:
        aws.converge()
        return
    with pytest.raises(PlanError) as error:
        aws.converge()
    (problem,) = error.value.problems
    assert problem.message == f"aws_ami is {AMI}, whose driver does not support {P5}"
    assert problem.found.startswith(f"supported EC2 instances: {families.split()[0].rstrip(',')}")
    assert problem.fix.endswith("/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id")
    assert aws.cloud.writes == [] and aws.cloud.misfits == []


@pytest.mark.parametrize("change", [{"Description": "our own"}, {"ImageOwnerAlias": "self"}])
def test_what_an_image_of_others_supports_is_not_known(
    aws: AwsWorld, change: dict[str, str]
) -> None:
    image = aws.cloud.account.network.images[AMI]
    image |= {"Description": DESCRIPTION.format("P3dn")} | change
    aws.converge()


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"count": 3}, "active", "one of 3 machines or more, not of 2"),
        ({"types": (SMALL,)}, "active", P5),
        ({"zones": (A,)}, "active", B),
        ({"market": "capacity_reservation"}, "active", "aws_market: capacity_block"),
        ({}, "expired", "one that is active, not expired"),
        ({}, "scheduled", "it begins at 1970-01-12 13:46 UTC"),
    ],
)
def test_a_block_that_does_not_fit_is_said(
    aws: AwsWorld, change: dict[str, Any], state: str, said: str
) -> None:
    account = aws.cloud.account
    block = account.reserve(P5, B, 2, block_end=aws.now + 86400)
    account.reservations[block]["State"] = state
    if state == "scheduled":
        aws.now -= 3600
    aws.settings |= {"market": "capacity_block", "reservation": block} | change
    with pytest.raises(PlanError) as refused:
        aws.converge()
    told = [one.expected for one in refused.value.problems]
    assert any(said in one for one in told), told
    assert "RunInstances" not in aws.cloud.writes


def test_a_refused_permission_is_named_without_what_only_aws_can_read(aws: AwsWorld) -> None:
    aws.cloud.account.faults.denied.add("RunInstances")
    with pytest.raises(AwsError) as refused:
        aws.converge()
    told = words(refused.value)
    assert "is not authorized to perform: ec2:RunInstances" in told["msg"]
    assert "Encoded" not in str(told) and "docs/aws.md" in told["fix"]
    assert told["found"] == "UnauthorizedOperation in answer to RunInstances"
    assert aws.fleet().pending is None


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("VcpuLimitExceeded", "Service Quotas"),
        ("MaxSpotInstanceCountExceeded", "Service Quotas"),
        ("AddressLimitExceeded", "aws_public_address: false"),
        ("PendingVerification", "wait for AWS to verify"),
        ("Blocked", "Billing"),
        ("ExpiredToken", "aws sso login"),
        ("NoCredentialsError", "aws configure"),
        ("Another", "correct the inventory"),
    ],
)
def test_each_refusal_has_its_own_way_out(code: str, fix: str) -> None:
    told = words(AwsError("run_instances", code, "In AWS's words."))
    assert told["msg"] == "AWS refused: In AWS's words." and fix in told["fix"]


def test_a_machine_without_credentials_says_how_to_get_them(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AwsError) as refused:
        AwsApi("us-east-2").all("describe_instances", "Reservations")
    assert "aws configure" in words(refused.value)["fix"]
    assert aws.cloud.log == []


def test_credentials_that_aws_does_not_know_are_not_shown(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASOMEBODYELSE0001")
    with pytest.raises(AwsError) as refused:
        AwsApi("us-east-2").all("describe_instances", "Reservations")
    assert refused.value.code == "AuthFailure"
    assert "AKIA" not in str(words(refused.value))


def test_silence_is_told(monkeypatch: pytest.MonkeyPatch, aws: AwsWorld) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Unreachable) as silence:
        AwsApi("us-east-2").ask("describe_availability_zones")
    assert words(silence.value)["msg"] == "AWS gives no answer"


def test_machines_in_a_zone_that_is_no_longer_named_are_said(aws: AwsWorld) -> None:
    (first, _) = aws.converge().machines
    aws.settings["zones"] = (B,)
    with pytest.raises(PlanError, match=f"machines of cluster r1 are in {A}"):
        aws.surroundings().ready(first.region)
