"""A machine of the emulated EC2, and its volume, as a launch makes them."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime
from typing import Any

from .ec2_network import VPC
from .ec2_parts import Refusal, tags_for

# EC2's user guide, "Run commands when you launch an EC2 instance with user data input".
MOST_USER_DATA = 16 * 1024


def new_machine(
    asked: dict[str, Any], zone: str, index: int, number: int, now: float
) -> dict[str, Any]:
    """Return the machine of an index in a launch, the account's `number`-th."""
    first = asked["NetworkInterfaces"][0]
    market = asked.get("InstanceMarketOptions", {}).get("MarketType", "")
    one = {
        "InstanceId": f"i-{secrets.token_hex(8)}",
        "ImageId": asked["ImageId"],
        "InstanceType": asked["InstanceType"],
        "ClientToken": asked["ClientToken"],
        "AmiLaunchIndex": index,
        "LaunchTime": date(now),
        "State": {"Name": "pending", "Code": 0},
        "Placement": {
            "AvailabilityZone": zone,
            "GroupName": asked.get("Placement", {}).get("GroupName", ""),
        },
        "KeyName": asked["KeyName"],
        "PrivateIpAddress": f"10.0.0.{number}",
        "VpcId": VPC,
        "SubnetId": first["SubnetId"],
        "SecurityGroups": [{"GroupId": each} for each in first["Groups"]],
        "NetworkInterfaces": [_interface(each) for each in asked["NetworkInterfaces"]],
        "Tags": tags_for(asked, "instance"),
    }
    if first.get("AssociatePublicIpAddress"):
        one["PublicIpAddress"] = f"198.51.100.{number}"
    if market:
        one["InstanceLifecycle"] = market
    if market == "spot":
        one["SpotInstanceRequestId"] = f"sir-{secrets.token_hex(4)}"
    if target := asked.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget"):
        one["CapacityReservationId"] = target["CapacityReservationId"]
    return one


def new_volume(asked: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Return the root volume of a machine."""
    return {
        "VolumeId": f"vol-{secrets.token_hex(8)}",
        "Size": asked["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"],
        "State": "in-use",
        "AvailabilityZone": machine["Placement"]["AvailabilityZone"],
        "CreateTime": machine["LaunchTime"],
        "Attachments": [{"InstanceId": machine["InstanceId"]}],
        "Tags": tags_for(asked, "volume"),
    }


def user_data(asked: dict[str, Any]) -> str:
    """Return what a machine runs at its first start, or refuse it as EC2 does."""
    try:
        content = base64.b64decode(asked.get("UserData", ""), validate=True)
    except ValueError:
        words = "Invalid BASE64 encoding of user data."
        raise Refusal("InvalidUserData.Malformed", words) from None
    if len(content) > MOST_USER_DATA:
        words = f"User data is limited to {MOST_USER_DATA} bytes"
        raise Refusal("InvalidParameterValue", words)
    return content.decode()


def date(seconds: float) -> datetime:
    """Return a time as botocore has it."""
    return datetime.fromtimestamp(seconds, UTC)


def _interface(asked: dict[str, Any]) -> dict[str, Any]:
    at = {
        "DeviceIndex": asked["DeviceIndex"],
        "NetworkCardIndex": asked.get("NetworkCardIndex", 0),
    }
    return {
        "NetworkInterfaceId": f"eni-{secrets.token_hex(8)}",
        "InterfaceType": asked.get("InterfaceType", "interface"),
        "Attachment": at,
    }
