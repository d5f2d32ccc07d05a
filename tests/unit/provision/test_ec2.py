"""The emulated EC2 is held to the model that botocore publishes, and knows what we ask."""

from __future__ import annotations

import ast
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

from tests.emulators.ec2_parts import KEY_ID

from .aws_world import P5, AwsWorld

ROOT = Path(__file__).parents[3]
NAMES = botocore.session.get_session().get_service_model("ec2").operation_names


def asked() -> Iterator[str]:
    """Yield the operations of EC2 that our own code names."""
    known = {"".join(f"_{c.lower()}" if c.isupper() else c for c in one)[1:]: one for one in NAMES}
    for path in (ROOT / "src/vllm_ansible/provision").glob("aws_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            words = [node.value] if isinstance(node, ast.Constant) else []
            words += [node.attr] if isinstance(node, ast.Attribute) else []
            yield from (known[one] for one in words if isinstance(one, str) and one in known)


def test_the_policy_of_the_docs_allows_what_is_asked_and_nothing_more() -> None:
    text = (ROOT / "docs/aws.md").read_text()
    policy = text[text.index('{"Version"') :]
    found, _ = json.JSONDecoder().raw_decode(policy)
    actions = {one for each in found["Statement"] for one in _all(each["Action"])}
    allowed = {one for one in actions if one.startswith("ec2:")}
    assert allowed == {f"ec2:{one}" for one in asked()}
    assert actions - allowed == {"ssm:GetParameter", "iam:PassRole"}


def _all(actions: str | list[str]) -> list[str]:
    return [actions] if isinstance(actions, str) else actions


def raw(aws: AwsWorld, **form: str) -> tuple[int, str]:
    """Send a request that no client of AWS would."""
    body = urllib.parse.urlencode({"Version": "2016-11-15", **form}).encode()
    headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20261125"}
    request = urllib.request.Request(aws.cloud.url, body, headers)  # noqa: S310  http
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_request_that_the_model_does_not_allow_is_refused(aws: AwsWorld) -> None:
    status, text = raw(aws, Action="RunInstances", InstanceType=P5, MaxCount="2")
    assert status == 400 and 'Missing required parameter in input: "MinCount"' in text.replace(
        "&quot;", '"'
    )
    assert aws.cloud.account.machines == {}
    status, text = raw(aws, Action="DescribeInstances")
    assert status == 200 and "<reservationSet" in text


def test_unmodified_boto3_reads_every_answer_by_its_own_model(aws: AwsWorld) -> None:
    """A launch by boto3 alone, with the words that the provider has sent, and its faults."""
    aws.converge()
    (wanted,) = aws.sent("RunInstances")
    client: Any = boto3.client("ec2", region_name="us-east-2")
    first = client.run_instances(**{**wanted, "ClientToken": "one"})
    again = client.run_instances(**{**wanted, "ClientToken": "one"})
    assert [one["InstanceId"] for one in first["Instances"]] == [
        one["InstanceId"] for one in again["Instances"]
    ]
    for change, code in (
        ({"ClientToken": "one", "MaxCount": 1, "MinCount": 1}, "IdempotentParameterMismatch"),
        ({"ClientToken": "two", "InstanceType": "p5.49xlarge"}, "InvalidParameterValue"),
        ({"ClientToken": "two", "ImageId": "ami-00"}, "InvalidAMIID.NotFound"),
        ({"ClientToken": "two", "MinCount": 9, "MaxCount": 9}, "InsufficientInstanceCapacity"),
    ):
        with pytest.raises(ClientError) as refused:
            client.run_instances(**{**wanted, **change})
        assert refused.value.response["Error"]["Code"] == code
    assert aws.cloud.misfits == []
