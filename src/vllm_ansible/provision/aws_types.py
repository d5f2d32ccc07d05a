"""Instance types of AWS: what they have before anybody is asked, and how their network is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Number and model of accelerators, as DescribeInstanceTypes has them; what plans ask for before any
# request is sent. tests/unit/provision/test_aws_types.py holds it to that answer.
DEVICES = {
    "g6e.xlarge": (1, "L40S"),
    "g6e.2xlarge": (1, "L40S"),
    "g6e.4xlarge": (1, "L40S"),
    "g6e.8xlarge": (1, "L40S"),
    "g6e.12xlarge": (4, "L40S"),
    "g6e.16xlarge": (1, "L40S"),
    "g6e.24xlarge": (4, "L40S"),
    "g6e.48xlarge": (8, "L40S"),
    "p4d.24xlarge": (8, "A100-40"),
    "p4de.24xlarge": (8, "A100-80"),
    "p5.4xlarge": (1, "H100"),
    "p5.48xlarge": (8, "H100"),
    "p5e.48xlarge": (8, "H200"),
    "p5en.48xlarge": (8, "H200"),
    "p6-b200.48xlarge": (8, "B200"),
}
EFA_ONLY = "efa-only"


def devices_of(instance_type: str) -> tuple[int, str] | None:
    """Return number and model of a type's accelerators; None for a type that is not known here."""
    return DEVICES.get(instance_type)


def has_fabric(described: Mapping[str, Any]) -> bool:
    """Tell whether a type, as DescribeInstanceTypes has it, reaches others of it over EFA."""
    return bool(described.get("NetworkInfo", {}).get("EfaSupported"))


def interfaces(
    described: Mapping[str, Any], subnet: str, groups: Sequence[str], public: bool
) -> list[dict[str, Any]]:
    """Return the network interfaces of a launch: all EFA cards that the type has.

    One interface carries IP, on card 0. Card 0 has an EFA interface beside it where as many are
    allowed as there are cards; every other card has one alone, without an address (EC2's user
    guide, "EFA for accelerated instance types"). `public` asks for an address of the internet,
    which EC2 gives at launch to machines of a single interface only.
    """
    network = described.get("NetworkInfo", {})
    cards = sorted(int(one["NetworkCardIndex"]) for one in network.get("NetworkCards", ())) or [0]
    fabric = int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0))
    if not has_fabric(described):
        fabric = 0
    places = [(0, 1)] if fabric >= len(cards) else []
    places += [(card, 0) for card in cards if card]
    places = places[:fabric]
    common = {"SubnetId": subnet, "Groups": list(groups), "DeleteOnTermination": True}
    first = {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", **common}
    if public and not places:
        first["AssociatePublicIpAddress"] = True
    others = [
        {"NetworkCardIndex": card, "DeviceIndex": device, "InterfaceType": EFA_ONLY, **common}
        for card, device in places
    ]
    return [first, *others]
