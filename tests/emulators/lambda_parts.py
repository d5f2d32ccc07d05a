"""What an account of Lambda's cloud is made of: refusals, types of instances, machines, faults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

HOSTNAME = re.compile(r"[a-z0-9][0-9a-z-]{0,62}")
TAG = re.compile(r"[a-z][a-z0-9-:]+")


class Refusal(Exception):
    """A request that the API refuses, with its code."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error = {"code": code, "message": message}
        if suggestion:
            self.error["suggestion"] = suggestion


def quota_exceeded() -> Refusal:
    """Return the refusal of one instance too many."""
    suggestion = "Contact Support to increase your quota."
    return Refusal(400, "global/quota-exceeded", "Quota exceeded.", suggestion)


def no_capacity() -> Refusal:
    """Return the refusal of a launch where no machine is left."""
    return Refusal(
        400,
        "instance-operations/launch/insufficient-capacity",
        "Not enough capacity to fulfill launch request.",
        "Choose an instance type with more availability, or try again later.",
    )


def invalid(message: str) -> Refusal:
    """Return the refusal of a parameter."""
    return Refusal(400, "global/invalid-parameters", message, "Check the request and try again.")


def missing(what: str) -> Refusal:
    """Return the refusal of what does not exist."""
    suggestion = "Check the request and try again."
    return Refusal(404, "global/object-does-not-exist", f"{what} does not exist.", suggestion)


class Machines(Protocol):
    """What stands behind instances."""

    def start(self, instance: str) -> tuple[str, str]:
        """Start a machine; return its public and its private address."""

    def stop(self, instance: str) -> None:
        """End the machine of an instance."""


class NoMachines:
    """Addresses that nobody has (RFC 5737), for tests that connect to none."""

    def __init__(self) -> None:
        self._count = 0

    def start(self, instance: str) -> tuple[str, str]:
        """Return the next address."""
        self._count += 1
        return f"198.51.100.{self._count}", f"192.0.2.{self._count}"

    def stop(self, instance: str) -> None:
        """Nothing runs."""


@dataclass
class Type:
    """A type of instance, and how many of it each region has left."""

    name: str
    gpu: str
    cents: int
    gpus: int = 1
    vcpus: int = 64
    memory_gib: int = 432
    storage_gib: int = 4096
    left: dict[str, int] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """Return it as the API describes it."""
        return {
            "name": self.name,
            "description": f"{self.gpus}x {self.gpu}",
            "gpu_description": self.gpu,
            "price_cents_per_hour": self.cents,
            "specs": {
                "vcpus": self.vcpus,
                "memory_gib": self.memory_gib,
                "storage_gib": self.storage_gib,
                "gpus": self.gpus,
            },
        }


@dataclass
class Faults:
    """What goes wrong, counted in launches; each is used up as it happens."""

    unhealthy: int = 0
    quota: int | None = None
    # Launches that are refused for want of machines although the list of types shows some.
    full: int = 0
    # Ids of instances that cannot be ended for now.
    held: set[str] = field(default_factory=set)
    # How far the list of instances lags behind.
    listing_seconds: float = 0.0
    boot_seconds: float = 0.0
    terminating_seconds: float = 0.0


def check_names(wanted: dict[str, Any]) -> None:
    """Refuse a hostname, name or tag of a launch that Lambda would not take."""
    if "hostname" in wanted and not HOSTNAME.fullmatch(wanted["hostname"]):
        raise invalid("Not a valid hostname.")
    if len(wanted.get("name", "")) > 64:
        raise invalid("The name of an instance has 64 characters at most.")
    for tag in wanted.get("tags", []):
        if not TAG.fullmatch(tag["key"]) or len(tag["key"]) > 55 or len(tag["value"]) > 128:
            raise invalid(f"Not a valid tag: {tag['key']}")
