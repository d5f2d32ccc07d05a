"""What an account of the emulated EC2 has beside machines: networks, groups, keys, addresses."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from .ec2_parts import AMI, SUBNET, ZONES, Faults, Refusal, clash, selected, tags_for

# As Amazon describes its images with a driver.
DESCRIPTION = (
    "Supported EC2 instances: {}. Release notes:"
    " https://docs.aws.amazon.com/dlami/latest/devguide/appendix-ami-release-notes.html"
)
VPC = "vpc-0123456789abcdef0"
OUT = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
Rules = list[dict[str, Any]]


class Network:
    """Resources that machines refer to; `users` lists machines that hold one in use."""

    def __init__(self, users: Callable[[], list[dict[str, Any]]], faults: Faults) -> None:
        self._users, self._faults = users, faults
        self.groups: dict[str, dict[str, Any]] = {}
        self.placements: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.addresses: dict[str, dict[str, Any]] = {}
        self.subnets = {
            SUBNET.format(number): {
                "SubnetId": SUBNET.format(number),
                "VpcId": VPC,
                "AvailabilityZone": zone,
                "DefaultForAz": True,
            }
            for number, zone in enumerate(ZONES)
        }
        self.images = {
            AMI: {
                "ImageId": AMI,
                "State": "available",
                "Architecture": "x86_64",
                "ImageOwnerAlias": "amazon",
                "Description": DESCRIPTION.format("G5, G6e, P4d, P4de, P5, P5e, P5en, P6-B300"),
                "RootDeviceName": "/dev/sda1",
                "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}],
            }
        }

    def describe_subnets(self, asked: dict[str, Any]) -> dict[str, Any]:
        for one in asked.get("SubnetIds", ()):
            if one not in self.subnets:
                raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{one}' does not exist")
        chosen = [
            one
            for name, one in self.subnets.items()
            if name in asked.get("SubnetIds", self.subnets)
        ]
        return {"Subnets": selected(chosen, asked, {"default-for-az": "DefaultForAz"})}

    def describe_images(self, asked: dict[str, Any]) -> dict[str, Any]:
        for one in asked["ImageIds"]:
            if one not in self.images:
                words = f"The image id '[{one}]' does not exist"
                raise Refusal("InvalidAMIID.NotFound", words)
        return {"Images": [self.images[one] for one in asked["ImageIds"]]}

    def create_security_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["GroupName"] in [one["GroupName"] for one in self.groups.values()]:
            words = f"The security group '{asked['GroupName']}' already exists"
            raise Refusal("InvalidGroup.Duplicate", words)
        identity = f"sg-{secrets.token_hex(8)}"
        self.groups[identity] = {
            "GroupId": identity,
            "GroupName": asked["GroupName"],
            "Description": asked["Description"],
            "VpcId": asked["VpcId"],
            "IpPermissions": [],
            # As in a real network: all may go out, until somebody says otherwise.
            "IpPermissionsEgress": [dict(OUT)],
            "Tags": tags_for(asked, "security-group"),
        }
        return {"GroupId": identity}

    def group(self, identity: str) -> dict[str, Any]:
        if identity not in self.groups:
            words = f"The security group '{identity}' does not exist"
            raise Refusal("InvalidGroup.NotFound", words)
        return self.groups[identity]

    def describe_security_groups(self, asked: dict[str, Any]) -> dict[str, Any]:
        chosen = [self.group(one) for one in asked.get("GroupIds", self.groups)]
        return {"SecurityGroups": selected(chosen, asked, {})}

    def authorize(self, asked: dict[str, Any], key: str) -> dict[str, Any]:
        rules: Rules = self.group(asked["GroupId"])[key]
        for one in asked["IpPermissions"]:
            if one in rules:
                words = "the specified rule already exists"
                raise Refusal("InvalidPermission.Duplicate", words)
            rules.append(one)
        return {"Return": True}

    def revoke(self, asked: dict[str, Any]) -> dict[str, Any]:
        rules: Rules = self.group(asked["GroupId"])["IpPermissions"]
        for one in asked["IpPermissions"]:
            plain = [each for each in rules if _without_words(each) == _without_words(one)]
            if not plain:
                words = "The specified rule does not exist in this security group."
                raise Refusal("InvalidPermission.NotFound", words)
            rules.remove(plain[0])
        return {"Return": True}

    def delete_security_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        identity = self.group(asked["GroupId"])["GroupId"]
        for one in self._users():
            if identity in [each["GroupId"] for each in one["SecurityGroups"]]:
                words = f"resource {identity} has a dependent object"
                raise Refusal("DependencyViolation", words)
        del self.groups[identity]
        return {"Return": True}

    def create_placement_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["GroupName"]
        if name in self.placements:
            words = f"The placement group '{name}' already exists."
            raise Refusal("InvalidPlacementGroup.Duplicate", words)
        self.placements[name] = {
            "GroupName": name,
            "GroupId": f"pg-{secrets.token_hex(8)}",
            "Strategy": asked["Strategy"],
            "State": "available",
            "Tags": tags_for(asked, "placement-group"),
        }
        return {"PlacementGroup": self.placements[name]}

    def placement(self, name: str) -> dict[str, Any]:
        if name not in self.placements:
            words = f"The Placement Group '{name}' is unknown."
            raise Refusal("InvalidPlacementGroup.Unknown", words)
        return self.placements[name]

    def describe_placement_groups(self, asked: dict[str, Any]) -> dict[str, Any]:
        chosen = [self.placement(one) for one in asked.get("GroupNames", self.placements)]
        return {"PlacementGroups": selected(chosen, asked, {})}

    def delete_placement_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = self.placement(asked["GroupName"])["GroupName"]
        if name in [one["Placement"].get("GroupName") for one in self._users()]:
            words = f"The placement group '{name}' is in use and may not be deleted."
            raise Refusal("InvalidPlacementGroup.InUse", words)
        del self.placements[name]
        return {}

    def import_key_pair(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked["KeyName"]
        given = asked["PublicKeyMaterial"]
        text = given.decode() if isinstance(given, bytes) else str(given)
        if not text.startswith("ssh-"):
            raise Refusal("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
        if name in self.keys:
            words = f"The keypair already exists: {name}"
            raise Refusal("InvalidKeyPair.Duplicate", words)
        self.keys[name] = {
            "KeyName": name,
            "KeyPairId": f"key-{secrets.token_hex(8)}",
            "PublicKey": text,
            "Tags": tags_for(asked, "key-pair"),
        }
        return {key: one for key, one in self.keys[name].items() if key != "PublicKey"}

    def key(self, name: str) -> dict[str, Any]:
        if name not in self.keys:
            words = f"The key pair '{name}' does not exist"
            raise Refusal("InvalidKeyPair.NotFound", words)
        return self.keys[name]

    def describe_key_pairs(self, asked: dict[str, Any]) -> dict[str, Any]:
        chosen = [self.key(one) for one in asked.get("KeyNames", self.keys)]
        return {"KeyPairs": selected(chosen, asked, {})}

    def delete_key_pair(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.keys = {
            name: one
            for name, one in self.keys.items()
            if one["KeyPairId"] != asked.get("KeyPairId")
        }
        return {"Return": True}

    def allocate_address(self, asked: dict[str, Any]) -> dict[str, Any]:
        if len(self.addresses) >= self._faults.addresses:
            words = "The maximum number of addresses has been reached."
            raise Refusal("AddressLimitExceeded", words)
        identity = f"eipalloc-{secrets.token_hex(8)}"
        self.addresses[identity] = {
            "AllocationId": identity,
            "PublicIp": f"203.0.113.{len(self.addresses) + 1}",
            "Domain": "vpc",
            "Tags": tags_for(asked, "elastic-ip"),
        }
        return {key: one for key, one in self.addresses[identity].items() if key != "Tags"}

    def describe_addresses(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Addresses": selected(self.addresses.values(), asked, {})}

    def associate_address(self, asked: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
        if machine["State"]["Name"] != "running":
            words = f"The pending instance '{machine['InstanceId']}' is not in a valid state"
            raise Refusal("InvalidInstanceID", words)
        one = self.addresses[asked["AllocationId"]]
        association = f"eipassoc-{secrets.token_hex(8)}"
        one |= {"InstanceId": machine["InstanceId"], "AssociationId": association}
        machine["PublicIpAddress"] = one["PublicIp"]
        return {"AssociationId": association}

    def disassociate_address(self, asked: dict[str, Any]) -> dict[str, Any]:
        for one in self.addresses.values():
            if one.get("AssociationId") == asked["AssociationId"]:
                self.free(one)
        return {}

    def release_address(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.addresses[asked["AllocationId"]].get("AssociationId"):
            raise Refusal("InvalidIPAddress.InUse", "The address is in use.")
        del self.addresses[asked["AllocationId"]]
        return {}

    def free(self, address: dict[str, Any]) -> None:
        """Take an address from its machine."""
        address.pop("InstanceId", None)
        address.pop("AssociationId", None)

    def check(self, asked: dict[str, Any], kind: dict[str, Any]) -> str:
        """Refuse interfaces that the type does not take; return the zone of the subnet."""
        zones, seen, fabric = set(), set(), 0
        info, interfaces = kind["NetworkInfo"], asked["NetworkInterfaces"]
        most = info.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        for one in interfaces:
            at = (one.get("NetworkCardIndex", 0), one["DeviceIndex"])
            if at in seen:
                raise clash(f"Device index {at[1]} of network card {at[0]} is given twice")
            seen.add(at)
            if at[0] >= info["MaximumNetworkCards"]:
                raise clash(f"There is no network card {at[0]} on {kind['InstanceType']}")
            if one.get("AssociatePublicIpAddress") and len(interfaces) > 1:
                raise clash(
                    "The associatePublicIPAddress parameter cannot be specified when launching "
                    "with multiple network interfaces."
                )
            if one.get("InterfaceType", "interface") != "interface":
                self._check_fabric(at, kind)
                fabric += 1
            for group in one["Groups"]:
                self.group(group)
            if one["SubnetId"] not in self.subnets:
                words = f"The subnet ID '{one['SubnetId']}' does not exist"
                raise Refusal("InvalidSubnetID.NotFound", words)
            zones.add(self.subnets[one["SubnetId"]]["AvailabilityZone"])
        if fabric > most:
            raise Refusal("AttachmentLimitExceeded", f"EFA interfaces: {fabric}, limit: {most}")
        (zone,) = zones
        return str(zone)

    def _check_fabric(self, at: tuple[int, int], kind: dict[str, Any]) -> None:
        info = kind["NetworkInfo"]
        if not info.get("EfaSupported"):
            words = f"EFA interfaces are not supported on {kind['InstanceType']}."
            raise Refusal("UnsupportedOperation", words)
        if at == (0, 0):
            raise clash("An efa-only interface cannot be the primary network interface")
        (card,) = [one for one in info["NetworkCards"] if one["NetworkCardIndex"] == at[0]]
        if "efa-only" not in card.get("InterfaceTypes", ["efa-only"]):
            words = f"Network Card {at[0]} (requested: 1, limit: 0)"
            raise Refusal("AttachmentLimitExceeded", words)


def _without_words(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without descriptions, by which EC2 tells no rules apart."""
    ranges = [{"CidrIp": one["CidrIp"]} for one in rule.get("IpRanges", ())]
    return {**rule, "IpRanges": ranges}
