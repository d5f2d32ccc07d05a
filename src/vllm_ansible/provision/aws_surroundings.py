"""What machines at AWS need beside themselves: a security group, a key, a placement group.

All of it is the cluster's own, named after it and tagged, unless the inventory names what exists.
It goes with the cluster; elastic addresses go with it, too.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.problem import PlanError, Problem

from .aws_api import AwsApi, AwsError, named, tag_list
from .aws_checks import Checked, check
from .aws_machines import CLUSTER, OWNER, STATE
from .aws_settings import AUTO, BLOCK, NONE, Settings
from .aws_types import has_fabric
from .cluster import owner

EVERYTHING = "-1"
# A group is let go of only once EC2 has forgotten the machines in it.
IN_USE = frozenset({"DependencyViolation", "InvalidPlacementGroup.InUse", "InvalidGroup.InUse"})
IN_USE_SECONDS, LOOK_SECONDS, TRIES = 300.0, 5.0, 6


@dataclass(frozen=True, slots=True)
class Place:
    """What a launch in a zone refers to."""

    subnet: str
    security_group: str
    key: str


class Surroundings:
    """The surroundings of one cluster's machines."""

    def __init__(
        self,
        api: AwsApi,
        settings: Settings,
        state: Callable[[], str] = str,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api, self._settings, self._state = api, settings, state
        self._now, self._sleep = now, sleep
        self._checked: Checked | None = None
        self._ready: dict[str, Place] = {}
        self.changed: list[str] = []

    @property
    def name(self) -> str:
        """Name of all that is the cluster's own."""
        return f"vllm-ansible-{self._settings.cluster}"

    @property
    def tags(self) -> dict[str, str]:
        """Tags of all that is the cluster's own."""
        own = {CLUSTER: self._settings.cluster, OWNER: self._settings.owner or owner()}
        state = self._state()
        return own | ({STATE: state} if state else {})

    def checked(self) -> Checked:
        """Return what was looked up once; raise PlanError with all that is wrong."""
        if self._checked is None:
            self._checked = check(self._api, self._settings, self._now)
        return self._checked

    def ready(self, place: str) -> Place:
        """Make what is missing in a zone."""
        if place not in self._ready:
            checked = self.checked()
            if place not in checked.subnets:
                raise PlanError(self._elsewhere(place))
            group = self._settings.security_group or self._group(checked.networks[place])
            key = self._settings.ssh_key or self._key()
            self._ready[place] = Place(checked.subnets[place], group, key)
        return self._ready[place]

    def placement(self, zone: str, kind: str) -> str:
        """Return the placement group of a launch, made where it is missing; empty for none.

        A capacity block takes none. A group is of one zone once machines are in it, so each has
        its own.
        """
        wanted = self._settings
        if wanted.placement_group == NONE or wanted.market == BLOCK:
            return ""
        if wanted.placement_group != AUTO:
            return wanted.placement_group
        if wanted.count + wanted.spares < 2 or not has_fabric(self.checked().types[kind]):
            return ""
        name = f"{self.name}-{zone}"
        if name not in {one["GroupName"] for one in self._own_placements()}:
            self._api.ask(
                "create_placement_group",
                GroupName=name,
                Strategy="cluster",
                TagSpecifications=[self._tagged("placement-group")],
            )
            self.changed.append(f"placement group {name}")
        return name

    def remove(self) -> list[str]:
        """Remove what is the cluster's own; its machines have to be gone."""
        gone = []
        for one in self._own("describe_addresses", "Addresses"):
            self._release(one)
            gone.append(f"elastic address {one['PublicIp']}")
        for one in self._own("describe_security_groups", "SecurityGroups"):
            self._patiently("delete_security_group", GroupId=one["GroupId"])
            gone.append(f"security group {one['GroupName']}")
        for one in self._own_placements():
            self._patiently("delete_placement_group", GroupName=one["GroupName"])
            gone.append(f"placement group {one['GroupName']}")
        for one in self._own("describe_key_pairs", "KeyPairs"):
            self._api.ask("delete_key_pair", KeyPairId=one["KeyPairId"])
            gone.append(f"key pair {one['KeyName']}")
        return gone

    def give_address(self, machine: str, interface: str) -> None:
        """Give a machine an elastic address at an interface: an own one that is free, or a new one.

        EC2 takes a machine of several interfaces for no place to put one.
        """
        own = self._own("describe_addresses", "Addresses")
        if machine in [one.get("InstanceId") for one in own]:
            return
        free = [one for one in own if not one.get("AssociationId")]
        if free:
            identity = str(free[0]["AllocationId"])
        else:
            made = self._api.ask(
                "allocate_address", Domain="vpc", TagSpecifications=[self._tagged("elastic-ip")]
            )
            identity = str(made["AllocationId"])
            self.changed.append(f"elastic address {made['PublicIp']}")
        self._api.ask("associate_address", AllocationId=identity, NetworkInterfaceId=interface)

    def _elsewhere(self, zone: str) -> Problem:
        zones = ", ".join(self._settings.zones)
        return Problem(
            f"machines of cluster {self._settings.cluster} are in {zone}",
            expected=f"all of them in one of {zones}",
            found=zone,
            where="aws_zones",
            fix=f"add {zone} to aws_zones; or run playbooks/teardown.yml with it, then site.yml "
            "without",
        )

    def _release(self, address: Mapping[str, Any]) -> None:
        if association := address.get("AssociationId"):
            self._api.ask("disassociate_address", AssociationId=association)
        self._api.ask("release_address", AllocationId=address["AllocationId"])

    def _patiently(self, operation: str, **parameters: Any) -> None:
        """Remove something that EC2 holds in use for a while after its last machine ended."""
        until = self._now() + IN_USE_SECONDS
        while True:
            try:
                self._api.ask(operation, **parameters)
                return
            except AwsError as error:
                if error.is_gone:
                    return
                if error.code not in IN_USE or self._now() >= until:
                    raise
            self._sleep(LOOK_SECONDS)

    def _soon(self, operation: str, **parameters: Any) -> None:
        """Change something that was made a moment ago, and may not be known everywhere yet."""
        for _ in range(TRIES):
            try:
                self._api.ask(operation, **parameters)
                return
            except AwsError as error:
                if not error.is_gone:
                    raise
                last = error
            self._sleep(LOOK_SECONDS)
        raise last

    def _group(self, network: str) -> str:
        """Return the security group in a network, with exactly the rules that it must have."""
        found = [
            one
            for one in self._own("describe_security_groups", "SecurityGroups")
            if one["VpcId"] == network
        ]
        if not found:
            made = self._api.ask(
                "create_security_group",
                GroupName=self.name,
                Description=f"Machines of cluster {self._settings.cluster}, by vllm-ansible",
                VpcId=network,
                TagSpecifications=[self._tagged("security-group")],
            )
            self.changed.append(f"security group {self.name} in {network}")
            found = [{"GroupId": made["GroupId"]}]
        self._rules(found[0])
        return str(found[0]["GroupId"])

    def _rules(self, group: Mapping[str, Any]) -> None:
        """Let all in and out between members, which EFA needs by name, and SSH in from outside."""
        identity = str(group["GroupId"])
        members = {(EVERYTHING, None, identity)}
        sources = {str(ipaddress.IPv4Network(one)) for one in self._settings.ssh_from}
        wanted = members | {("tcp", 22, one) for one in sources}
        let_in = _plain(group.get("IpPermissions", ()))
        let_out = _plain(group.get("IpPermissionsEgress", ()))
        changes = (
            ("authorize_security_group_ingress", wanted - let_in),
            ("revoke_security_group_ingress", let_in - wanted),
            ("authorize_security_group_egress", members - let_out),
        )
        for operation, rules in changes:
            if rules:
                listed = [_permission(one) for one in sorted(rules, key=str)]
                self._soon(operation, GroupId=identity, IpPermissions=listed)
        if changes[0][1] or changes[1][1]:
            self.changed.append(f"rules of security group {self.name}")

    def _key(self) -> str:
        """Return the name of the key pair that holds the inventory's public key."""
        text = self._settings.public_key()
        mine = named(f"tag:{CLUSTER}", self._settings.cluster)
        kept = self._api.all(
            "describe_key_pairs", "KeyPairs", Filters=[mine], IncludePublicKey=True
        )
        # What stands behind the key itself is a comment.
        if text.split()[:2] in [str(one.get("PublicKey", "")).split()[:2] for one in kept]:
            return self.name
        for one in kept:
            self._api.ask("delete_key_pair", KeyPairId=one["KeyPairId"])
        self._api.ask(
            "import_key_pair",
            KeyName=self.name,
            PublicKeyMaterial=text.encode(),
            TagSpecifications=[self._tagged("key-pair")],
        )
        self.changed.append(f"key pair {self.name}")
        return self.name

    def _own_placements(self) -> list[dict[str, Any]]:
        found = self._own("describe_placement_groups", "PlacementGroups")
        return [one for one in found if one.get("State") != "deleted"]

    def _own(self, operation: str, key: str) -> list[dict[str, Any]]:
        """Return what is tagged as this cluster's."""
        mine = named(f"tag:{CLUSTER}", self._settings.cluster)
        return self._api.all(operation, key, Filters=[mine])

    def _tagged(self, resource: str) -> dict[str, Any]:
        return {"ResourceType": resource, "Tags": tag_list({"Name": self.name, **self.tags})}


def _plain(permissions: Any) -> set[tuple[str, int | None, str]]:
    """Return rules as protocol, first port and who, so that equal ones are equal."""
    rules = set()
    for one in permissions:
        port = one.get("FromPort") if one["IpProtocol"] != EVERYTHING else None
        sources = [str(each["CidrIp"]) for each in one.get("IpRanges", ())]
        sources += [str(each["GroupId"]) for each in one.get("UserIdGroupPairs", ())]
        rules |= {(str(one["IpProtocol"]), port, source) for source in sources}
    return rules


def _permission(rule: tuple[str, int | None, str]) -> dict[str, Any]:
    protocol, port, who = rule
    found: dict[str, Any] = {"IpProtocol": protocol}
    if port is not None:
        found |= {"FromPort": port, "ToPort": port}
    if who.startswith("sg-"):
        return found | {"UserIdGroupPairs": [{"GroupId": who}]}
    return found | {"IpRanges": [{"CidrIp": who, "Description": "SSH by vllm-ansible"}]}
