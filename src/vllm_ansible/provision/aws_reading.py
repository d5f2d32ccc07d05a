"""Read the variables of an inventory of AWS; every problem is reported at once."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from vllm_ansible.problem import PlanError, Problem, close_match

from .aws_settings import AUTO, BLOCK, MARKETS, NONE, RESERVATION, Settings

NUMBER = (int, float)


class Field(NamedTuple):
    """A variable, the field that holds it, its type, and what it must be."""

    variable: str
    name: str
    kind: type
    expected: str
    required: bool = False
    fits: Callable[[Any], bool] = lambda _: True


def _texts(pattern: str) -> Callable[[Any], bool]:
    """Tell lists of texts of which each matches."""
    compiled = re.compile(pattern)
    return lambda value: all(isinstance(one, str) and compiled.fullmatch(one) for one in value)


def _text(pattern: str) -> Callable[[Any], bool]:
    """Tell texts that match; empty is not given."""
    compiled = re.compile(pattern)
    return lambda value: not value or bool(compiled.fullmatch(value))


def _are_networks(value: Iterable[Any]) -> bool:
    try:
        return all(ipaddress.IPv4Network(str(one)) for one in value)
    except ValueError:
        return False


def _are_prices(value: Mapping[Any, Any]) -> bool:
    return all(
        isinstance(one, NUMBER) and not isinstance(one, bool) and 0 < one < inf
        for one in value.values()
    )


TYPE = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
FIELDS = (
    Field(
        *("cluster_name", "cluster", str),
        "a small letter, then at most 15 small letters, digits or dashes",
        required=True,
        fits=_text(r"[a-z][a-z0-9-]{0,15}"),
    ),
    Field(
        *("aws_region", "region", str),
        "a region, such as us-east-2",
        required=True,
        fits=_text(r"[a-z]{2}(-[a-z]+)+-\d+"),
    ),
    Field(
        *("aws_zones", "zones", list),
        "a list of availability zones of aws_region, in order of preference",
        required=True,
        fits=lambda value: bool(value) and _texts(r"[a-z0-9-]+")(value),
    ),
    Field(
        *("aws_instance_types", "types", list),
        "a list of instance types, in order of preference",
        required=True,
        fits=lambda value: bool(value) and _texts(TYPE)(value),
    ),
    Field(
        *("aws_ami", "image", str),
        "the id of an AMI, or the name of a parameter of Systems Manager, which begins with /",
        required=True,
        fits=_text(r"ami-[0-9a-f]+|/[\w./-]+"),
    ),
    Field(
        *("node_count", "count", int),
        "a whole number, 1 or more",
        required=True,
        fits=lambda value: bool(value >= 1),
    ),
    Field(
        *("spare_count", "spares", int),
        "a whole number, 0 or more",
        fits=lambda value: bool(value >= 0),
    ),
    Field(
        *("aws_subnets", "subnets", list),
        "a list of ids of subnets, one for each zone",
        fits=_texts(r"subnet-[0-9a-f]+"),
    ),
    Field(
        *("aws_market", "market", str),
        f"one of {', '.join(MARKETS)}",
        fits=lambda value: value in MARKETS,
    ),
    Field(
        *("aws_capacity_reservation", "reservation", str),
        "the id of a capacity reservation or block, such as cr-0123456789abcdef0",
        fits=_text(r"cr-[0-9a-f]+"),
    ),
    Field("aws_ssh_key_name", "ssh_key", str, "the name of a key pair at AWS"),
    Field("aws_ssh_public_key_file", "public_key_file", str, "the path of a file"),
    Field(
        *("aws_security_group", "security_group", str),
        "the id of a security group, such as sg-0123456789abcdef0",
        fits=_text(r"sg-[0-9a-f]+"),
    ),
    Field(
        *("aws_ssh_from", "ssh_from", list),
        "a list of networks, such as 198.51.100.0/24",
        fits=_are_networks,
    ),
    Field(
        *("aws_placement_group", "placement_group", str),
        f"{AUTO}, {NONE}, or the name of a placement group",
    ),
    Field("aws_public_address", "public_address", bool, "true or false"),
    Field("aws_instance_profile", "instance_profile", str, "the name of an instance profile"),
    Field(
        *("aws_root_gib", "root_gib", int),
        "a whole number of GiB, 8 or more",
        fits=lambda value: bool(value >= 8),
    ),
    Field(
        *("aws_usd_per_hour", "prices", dict),
        "US dollars an hour by instance type, each above 0",
        fits=_are_prices,
    ),
    Field("aws_profile", "profile", str, "the name of a profile of your AWS configuration"),
    Field("aws_adopt", "adopt", bool, "true or false"),
    Field(
        *("aws_owner", "owner", str),
        "at most 128 letters, digits and . @ : + _ -, such as team-a",
        fits=_text(r"[\w.@:+-]{0,128}"),
    ),
    Field("privileges", "privileges", str, "auto, root or none"),
)
# Limits, each with its field and what one of its units is there; 0 is no limit.
LIMITS = {
    "max_usd_per_hour": ("max_cents_per_hour", 100),
    "max_cost": ("max_cents", 100),
    "max_hours": ("max_seconds", 3600),
}
# All that an inventory says about machines at AWS.
READ = (*(one.variable for one in FIELDS), *LIMITS)


def settings(variables: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of an inventory; raise PlanError with all that is wrong with them."""
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    for one in FIELDS:
        value = variables.get(one.variable)
        if value is None or value == "":
            if one.required:
                problems.append(_missing(one, variables, where))
            continue
        value = _given(value, one.kind)
        # A boolean is a number to Python and none to a person.
        unfit = isinstance(value, bool) and one.kind is not bool
        if unfit or not isinstance(value, one.kind) or not one.fits(value):
            problems.append(_wrong(one.variable, value, one.expected, where))
            continue
        found[one.name] = value
    for variable, (name, unit) in LIMITS.items():
        limit = _given(variables.get(variable) or 0, float)
        if isinstance(limit, bool) or not isinstance(limit, NUMBER) or not 0 <= limit < inf:
            problems.append(_wrong(variable, limit, "a number, 0 for no limit", where))
        elif limit:
            found[name] = round(limit * unit)
    if not problems:
        problems = list(_together(found, where))
    if problems:
        raise PlanError(problems)
    return Settings(**_typed(found))


def _typed(found: Mapping[str, Any]) -> dict[str, Any]:
    typed: dict[str, Any] = {
        name: tuple(map(str, value)) if isinstance(value, list) else value
        for name, value in found.items()
    }
    if "public_key_file" in typed:
        # Whoever watches the limits does so from elsewhere.
        typed["public_key_file"] = Path(typed["public_key_file"]).expanduser().absolute()
    typed["prices"] = {
        str(kind): round(price * 100) for kind, price in found.get("prices", {}).items()
    }
    return typed


def _together(found: Mapping[str, Any], where: str) -> Iterable[Problem]:
    """Return what is wrong with values that do not go with others."""
    region, market = found["region"], found.get("market", "")
    for zone in found["zones"]:
        if not zone.startswith(region):
            yield _wrong("aws_zones", zone, f"a zone of {region}, such as {region}a", where)
    reserved = market in (RESERVATION, BLOCK)
    if reserved != bool(found.get("reservation")):
        expected = f"an id with aws_market {RESERVATION} or {BLOCK}, and with no other"
        value = found.get("reservation", "")
        yield _wrong("aws_capacity_reservation", value, expected, where)
    if market == BLOCK and found.get("placement_group", AUTO) not in (AUTO, NONE):
        expected = "none in a capacity block, whose machines are close to each other as they are"
        yield _wrong("aws_placement_group", found["placement_group"], expected, where)
    if bool(found.get("ssh_key")) == bool(found.get("public_key_file")):
        both = "both" if found.get("ssh_key") else "neither"
        yield Problem(
            f"{both} of aws_ssh_key_name and aws_ssh_public_key_file",
            expected="a key pair that AWS has, or a public key that it is given",
            found=both,
            where=where,
            fix="set one of them",
        )
    if not found.get("security_group") and not found.get("ssh_from"):
        yield Problem(
            "the machines could not be reached: aws_ssh_from is not set",
            expected="networks from which SSH is let in, or a security group of your own",
            found="neither",
            where=where,
            fix="set aws_ssh_from to the address that this machine has on the way to AWS, such as "
            "[198.51.100.7/32], or set aws_security_group",
        )
    yield from _without_price(found, where)


def _without_price(found: Mapping[str, Any], where: str) -> Iterable[Problem]:
    """Return a problem for each type of no price where a limit is one of money.

    EC2 tells no price. A capacity block was paid for in advance and costs nothing by the hour.
    """
    limits = [one for one in ("max_usd_per_hour", "max_cost") if LIMITS[one][0] in found]
    if not limits or found.get("market") == BLOCK:
        return
    for kind in found["types"]:
        if kind not in found.get("prices", {}):
            yield Problem(
                f"{limits[0]} is set, and the price of {kind} is not known",
                expected="what your account pays for one machine, in US dollars an hour",
                found="no price: EC2 returns none",
                where=where,
                fix=f"set aws_usd_per_hour: {{{kind}: PRICE}}, or use max_hours instead",
            )


def _given(value: Any, kind: type) -> Any:
    """Return a number or truth that was given as text, as all is that comes with -e."""
    if not isinstance(value, str) or kind not in (bool, int, float):
        return value
    if kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    try:
        return kind(value)
    except ValueError:
        return value


def _missing(one: Field, variables: Mapping[str, Any], where: str) -> Problem:
    near = close_match(one.variable, [name for name in variables if name not in READ])
    fix = near or f"set {one.variable}"
    return Problem(f"{one.variable} is not set", one.expected, "nothing", where, fix)


def _wrong(variable: str, value: Any, expected: str, where: str) -> Problem:
    return Problem(f"{variable} is {value!r}", expected, repr(value), where, "correct it")
