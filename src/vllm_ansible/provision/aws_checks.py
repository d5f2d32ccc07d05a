"""What is looked up once and refused before a launch: types, zones, image, reservation."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

from .aws_api import AwsApi, AwsError, named, seconds
from .aws_settings import AUTO, NONE, RESERVATION, Settings

# The description of each Deep Learning AMI begins with it.
SUPPORTED = re.compile(r"Supported EC2 instances: ([\w\s.,()-]+?)\. ")
NEWEST = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"


@dataclass(frozen=True, slots=True)
class Checked:
    """What EC2 says of what the inventory names: subnets and their networks by zone."""

    types: Mapping[str, Mapping[str, Any]]
    subnets: Mapping[str, str]
    networks: Mapping[str, str]
    image: str
    root_device: str
    # Types in zones where they are offered.
    offered: frozenset[tuple[str, str]]


def check(api: AwsApi, wanted: Settings, now: Callable[[], float] = time.time) -> Checked:
    """Look all up; raise PlanError with all that is wrong."""
    problems: list[Problem] = []
    types = _types(api, wanted, problems)
    subnets, networks = _subnets(api, wanted, problems)
    image, root = _image(api, wanted, types, problems)
    if wanted.ssh_key:
        _exists(api, "describe_key_pairs", "KeyNames", "aws_ssh_key_name", wanted.ssh_key, problems)
    if wanted.security_group:
        _exists(
            *(api, "describe_security_groups", "GroupIds", "aws_security_group"),
            *(wanted.security_group, problems),
        )
    if wanted.placement_group not in (AUTO, NONE):
        _exists(
            *(api, "describe_placement_groups", "GroupNames", "aws_placement_group"),
            *(wanted.placement_group, problems),
        )
    offered = _offered(api, wanted) & {(kind, zone) for kind in types for zone in subnets}
    if wanted.reservation:
        offered &= {_reserved(api, wanted, now(), problems)}
    if types and subnets and not offered and not problems:
        problems.append(_nowhere(wanted))
    if problems:
        raise PlanError(problems)
    return Checked(types, subnets, networks, image, root, frozenset(offered))


def _types(api: AwsApi, wanted: Settings, problems: list[Problem]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for kind in wanted.types:
        try:
            (one,) = api.all("describe_instance_types", "InstanceTypes", InstanceTypes=[kind])
            found[kind] = one
        except AwsError as error:
            if error.code != "InvalidInstanceType":
                raise
            problems.append(
                _wrong("aws_instance_types", kind, f"an instance type of {wanted.region}")
            )
    return found


def _offered(api: AwsApi, wanted: Settings) -> set[tuple[str, str]]:
    listed = api.all(
        *("describe_instance_type_offerings", "InstanceTypeOfferings"),
        LocationType="availability-zone",
        Filters=[named("instance-type", *wanted.types)],
    )
    return {(str(one["InstanceType"]), str(one["Location"])) for one in listed}


def _subnets(
    api: AwsApi, wanted: Settings, problems: list[Problem]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return subnet and network of each zone: those that are named, or the zone's default."""
    zones = [
        str(one["ZoneName"]) for one in api.all("describe_availability_zones", "AvailabilityZones")
    ]
    for zone in wanted.zones:
        if zone not in zones:
            expected = f"one of {', '.join(sorted(zones))}"
            problems.append(_wrong("aws_zones", zone, expected, close_match(zone, zones)))
    named_ones = {"SubnetIds": list(wanted.subnets)}
    default = {"Filters": [named("default-for-az", "true")]}
    try:
        listed = api.all(
            "describe_subnets", "Subnets", **(named_ones if wanted.subnets else default)
        )
    except AwsError as error:
        if not error.is_gone:
            raise
        problems.append(_wrong("aws_subnets", ", ".join(wanted.subnets), error.message))
        return {}, {}
    by_zone = {str(one["AvailabilityZone"]): one for one in listed}
    for zone in wanted.zones:
        if zone in zones and zone not in by_zone:
            expected = f"a subnet in {zone}, or a default one there"
            problems.append(_wrong("aws_subnets", ", ".join(wanted.subnets) or "none", expected))
    used = {zone: by_zone[zone] for zone in wanted.zones if zone in by_zone}
    return (
        {zone: str(one["SubnetId"]) for zone, one in used.items()},
        {zone: str(one["VpcId"]) for zone, one in used.items()},
    )


def _image(
    api: AwsApi,
    wanted: Settings,
    types: Mapping[str, Mapping[str, Any]],
    problems: list[Problem],
) -> tuple[str, str]:
    """Return id and root device of the image; it must run on every type."""
    identity = wanted.image
    try:
        if identity.startswith("/"):
            identity = api.parameter(identity)
        images = api.all("describe_images", "Images", ImageIds=[identity])
    except AwsError as error:
        if not (error.is_gone or error.code == "ParameterNotFound"):
            raise
        images = []
    if not images:
        expected = f"an AMI of {wanted.region} that this account may launch; ids differ by region"
        problems.append(_wrong("aws_ami", wanted.image, expected))
        return "", ""
    image = images[0]
    if image.get("State") != "available":
        problems.append(
            _wrong("aws_ami", identity, f"an AMI that is available, not {image['State']}")
        )
    own = str(image.get("Architecture"))
    for kind, one in types.items():
        runs = one.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
        if own not in runs:
            expected = f"an AMI for {' or '.join(runs)}, which {kind} runs, not for {own}"
            problems.append(_wrong("aws_ami", identity, expected))
        made_for = _made_for(image) if one.get("GpuInfo") else ()
        # P4 stands for P4d, too.
        if made_for and not kind.startswith(tuple(family.lower() for family in made_for)):
            problems.append(
                Problem(
                    f"aws_ami is {identity}, whose driver does not support {kind}",
                    f"an AMI whose description names the family of {kind}",
                    f"supported EC2 instances: {', '.join(made_for)}",
                    "aws_ami",
                    f"set aws_ami: {NEWEST.format(own)}",
                )
            )
    root = str(image.get("RootDeviceName", ""))
    disk: Mapping[str, Any] = next(
        (
            one["Ebs"]
            for one in image.get("BlockDeviceMappings", ())
            if one.get("DeviceName") == root and "Ebs" in one
        ),
        {},
    )
    least = int(disk.get("VolumeSize") or 0)
    if wanted.root_gib < least:
        expected = f"{least} or more, as large as the root volume of {identity}"
        problems.append(_wrong("aws_root_gib", str(wanted.root_gib), expected))
    return identity, root


def _made_for(image: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the families that an image of Amazon supports; nothing where it says none.

    EC2 tells no driver of an image. Images with a driver say in their description what it supports.
    """
    said = SUPPORTED.match(str(image.get("Description", "")))
    if image.get("ImageOwnerAlias") != "amazon" or not said:
        return ()
    return tuple(one.split()[0] for one in said[1].split(",") if one.strip())


def _exists(
    api: AwsApi, operation: str, by: str, variable: str, value: str, problems: list[Problem]
) -> None:
    """Note a problem where what a variable names does not exist."""
    try:
        asked: dict[str, Any] = {by: [value]}
        api.ask(operation, **asked)
    except AwsError as error:
        if not error.is_gone:
            raise
        problems.append(_wrong(variable, value, f"one that exists in the region: {error.message}"))


def _reserved(
    api: AwsApi, wanted: Settings, now: float, problems: list[Problem]
) -> tuple[str, str]:
    """Return type and zone of a reservation."""
    variable = "aws_capacity_reservation"
    try:
        (one,) = api.all(
            *("describe_capacity_reservations", "CapacityReservations"),
            CapacityReservationIds=[wanted.reservation],
        )
    except AwsError as error:
        if not error.is_gone:
            raise
        problems.append(_wrong(variable, wanted.reservation, f"one of {wanted.region}"))
        return "", ""
    is_block = one.get("ReservationType") == "capacity-block"
    if is_block == (wanted.market == RESERVATION):
        expected = f"aws_market: {'capacity_block' if is_block else RESERVATION}"
        problems.append(_wrong(variable, wanted.reservation, expected))
    if one["State"] != "active":
        begins = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds(one.get("StartDate"))))
        later = seconds(one.get("StartDate")) > now
        expected = f"one that is active, not {one['State']}"
        problems.append(
            _wrong(
                *(variable, wanted.reservation, f"{expected}; it begins at {begins}"),
                "run the same command then",
            )
            if later
            else _wrong(variable, wanted.reservation, expected)
        )
    place = (str(one["InstanceType"]), str(one["AvailabilityZone"]))
    if place[0] not in wanted.types:
        problems.append(_wrong("aws_instance_types", ", ".join(wanted.types), place[0]))
    if place[1] not in wanted.zones:
        problems.append(_wrong("aws_zones", ", ".join(wanted.zones), place[1]))
    if (total := int(one["TotalInstanceCount"])) < wanted.count + wanted.spares:
        expected = f"one of {wanted.count + wanted.spares} machines or more, not of {total}"
        problems.append(_wrong(variable, wanted.reservation, expected))
    return place


def _nowhere(wanted: Settings) -> Problem:
    return _wrong(
        "aws_zones",
        ", ".join(wanted.zones),
        f"a zone that offers {' or '.join(wanted.types)}",
        "see aws ec2 describe-instance-type-offerings --location-type availability-zone",
    )


def _wrong(variable: str, found: str, expected: str, fix: str = "") -> Problem:
    return Problem(
        f"{variable} is {found}, which cannot be used",
        expected,
        found,
        variable,
        fix or f"correct {variable}",
    )
