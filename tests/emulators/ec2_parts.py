"""What the emulated EC2 is made of: refusals, filters, faults, and what its account is given."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

AMI, SUBNET, KEY_ID = "ami-0123456789abcdef0", "subnet-{:016x}", "AKIAEMULATEDANN00001"
SECRET = "secret-of-ann.0123456789"  # noqa: S105  nobody's
REGION = "us-east-2"
ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
PARAMETER = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
)


def environment(url: str) -> dict[str, str]:
    """Return what the usual chain of credentials reads, and nothing of the user's own."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }


class Refusal(Exception):
    """A request that EC2 refuses, with its code and status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def wrong(message: str) -> Refusal:
    """Return the refusal of a value."""
    return Refusal("InvalidParameterValue", message)


def clash(message: str) -> Refusal:
    """Return the refusal of values that do not go together."""
    return Refusal("InvalidParameterCombination", message)


@dataclass
class Faults:
    """What goes wrong, by configuration: times in seconds, operations as AWS names them."""

    boot_seconds: float = 0.0
    terminating_seconds: float = 0.0
    # So long after a launch no request knows of its machines.
    late_seconds: float = 0.0
    # Why machines end as soon as they were launched.
    stillborn: str = ""
    vcpus: int = 10_000
    spot_vcpus: int = 10_000
    addresses: int = 5
    # How often an operation is refused for coming too often, or carried out without an answer.
    throttled: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    # Ids of machines that fail a status check, that are protected, that are taken back and when.
    impaired: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    interrupted: dict[str, float] = field(default_factory=dict)


def selected(
    listed: Iterable[dict[str, Any]], asked: Mapping[str, Any], known: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return what passes all filters of a request; `known` has the member of each filter's name."""
    found = list(listed)
    for one in asked.get("Filters", ()):
        name, values = one["Name"], one.get("Values", [])
        found = [each for each in found if _passes(each, name, values, known)]
    return found


def _passes(
    listed: Mapping[str, Any], name: str, values: list[str], known: Mapping[str, str]
) -> bool:
    tags = {one["Key"]: one["Value"] for one in listed.get("Tags", ())}
    if name == "tag-key":
        return bool(tags.keys() & set(values))
    if name.startswith("tag:"):
        return tags.get(name[4:]) in values
    if name not in known:
        raise wrong(f"The filter '{name}' is invalid")
    at: Any = listed
    for part in known[name].split("."):
        at = at.get(part) if isinstance(at, Mapping) else None
    text = str(at).lower() if isinstance(at, bool) else str(at)
    return any(fnmatch.fnmatchcase(text, value) for value in values)


def tags_for(asked: Mapping[str, Any], resource: str) -> list[dict[str, str]]:
    """Return the tags that a request gives resources of a kind."""
    return [
        dict(tag)
        for one in asked.get("TagSpecifications", ())
        if one.get("ResourceType") == resource
        for tag in one["Tags"]
    ]
