"""What moto knows of EC2 better than our emulator: groups, rules, keys, tags and images by boto3.

moto has no placement groups, makes two interfaces of 33, launches a token twice, keeps a key pair
that is deleted by its id: those are the emulator's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.emulators.ec2_parts import KEY_ID, SECRET
from vllm_ansible.provision.aws_api import AwsApi, named
from vllm_ansible.provision.aws_checks import check
from vllm_ansible.provision.aws_machines import CLUSTER, SLOT, cluster_of, instances, slot_of
from vllm_ansible.provision.aws_request import body
from vllm_ansible.provision.aws_settings import Settings
from vllm_ansible.provision.aws_surroundings import Place, Surroundings
from vllm_ansible.provision.fleet import Offer, Pending

REGION, ZONE = "us-east-2", "us-east-2a"
P5, SMALL = "p5.48xlarge", "g6e.xlarge"
# A key of nobody: moto reads it as EC2 does.
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ann@here"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return an unmodified client of a region of moto's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("ec2", region_name=REGION)


def wanted(ec2: Any, directory: Path, **more: Any) -> Settings:
    (directory / "key.pub").write_text(f"{KEY}\n")
    images = ec2.describe_images(Owners=["amazon"])["Images"]
    image = next(one["ImageId"] for one in images if one["Architecture"] == "x86_64")
    given: dict[str, Any] = {
        "region": REGION,
        "zones": (ZONE,),
        "types": (P5,),
        "image": image,
        "count": 2,
        "public_key_file": directory / "key.pub",
        "ssh_from": ("198.51.100.0/24",),
        "owner": "ann@here",
    }
    return Settings("r1", **{**given, **more})


def ready(settings: Settings) -> tuple[Place, list[str]]:
    one = Surroundings(AwsApi(REGION), settings, lambda: "5ta7e", sleep=lambda _: None)
    return one.ready(ZONE), one.changed


def test_group_and_key_are_made_once_and_put_right_where_somebody_changed_them(
    ec2: Any, tmp_path: Path
) -> None:
    place, changed = ready(wanted(ec2, tmp_path))
    assert [one.partition(" vllm-ansible-r1")[0] for one in changed] == [
        "security group",
        "rules of security group",
        "key pair",
    ]
    assert ready(wanted(ec2, tmp_path)) == (place, [])
    (group,) = ec2.describe_security_groups(GroupIds=[place.security_group])["SecurityGroups"]
    to_itself = [
        [pair["GroupId"] for pair in one["UserIdGroupPairs"]]
        for key in ("IpPermissions", "IpPermissionsEgress")
        for one in group[key]
        if one["IpProtocol"] == "-1" and one["UserIdGroupPairs"]
    ]
    assert to_itself == [[place.security_group]] * 2
    world = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}]
    world[0]["IpRanges"] = [{"CidrIp": "0.0.0.0/0"}]
    ec2.authorize_security_group_ingress(GroupId=place.security_group, IpPermissions=world)
    again, changed = ready(wanted(ec2, tmp_path))
    assert again == place
    assert changed == ["rules of security group vllm-ansible-r1"]
    (group,) = ec2.describe_security_groups(GroupIds=[place.security_group])["SecurityGroups"]
    ranges = [each["CidrIp"] for one in group["IpPermissions"] for each in one["IpRanges"]]
    assert ranges == ["198.51.100.0/24"]
    (pair,) = ec2.describe_key_pairs()["KeyPairs"]
    assert (pair["KeyName"], pair["KeyType"]) == (place.key, "ed25519")


def test_what_is_looked_up_is_found_in_amazons_own_catalogue(ec2: Any, tmp_path: Path) -> None:
    settings = wanted(ec2, tmp_path, types=(P5, "p5en.48xlarge", "p6-b300.48xlarge"))
    found = check(AwsApi(REGION), settings)
    cards = {
        kind: one["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"]
        for kind, one in found.types.items()
    }
    assert cards == {P5: 32, "p5en.48xlarge": 16, "p6-b300.48xlarge": 16}
    assert (P5, ZONE) in found.offered and found.subnets[ZONE].startswith("subnet-")


def test_machines_are_read_moved_and_ended_by_their_tags(ec2: Any, tmp_path: Path) -> None:
    settings, api = wanted(ec2, tmp_path, types=(SMALL,)), AwsApi(REGION)
    place, _ = ready(settings)
    offer, pending = Offer(SMALL, ZONE, 0, True), Pending(0, "a" * 32, 1.0, count=2)
    asked = body(settings, check(api, settings), place, "", {CLUSTER: "r1"}, (0, 1), offer, pending)
    ids = api.launch(asked)
    mine = [named(f"tag:{CLUSTER}", "r1")]
    found = {one["id"]: one for one in instances(api, mine)}
    assert sorted(found) == sorted(ids)
    assert {cluster_of(one) for one in found.values()} == {"r1"}
    api.tag([ids[0]], {SLOT: "5"})
    assert 5 in {slot_of(one) for one in instances(api, mine)}
    api.ask("terminate_instances", InstanceIds=ids)
    assert {one["status"] for one in instances(api, mine)} <= {"terminating", "terminated"}
