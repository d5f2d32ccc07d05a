"""The hosts of a rented cluster: a name for each slot, with addresses once it has a machine.

Every slot is a host from the start, with what its type of instance is known to have. So a layout
is planned, and refused, before anything is rented; and a stage that is run too early fails on hosts
without an address instead of finding nobody to work on.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .fleet import GONE, NOWHERE, SSH, Machine, first
from .provider import Provider, Settings

# Of a host in the DNS; never an option of ssh.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Host:
    """One entry of the inventory."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]


def hosts(
    settings: Settings,
    machines: Iterable[Machine],
    launched_here: Callable[[Machine], bool] = lambda _: False,
    parts: Mapping[str, int] | None = None,
) -> list[Host]:
    """Return a host for each slot; the first is the head, the last ones are spares.

    `launched_here` tells the machines that this controller's state/ has launched, `parts` the slots
    of machines beside the cluster, each by its group.
    """
    by_slot: dict[int, Machine] = {}
    for one in sorted(machines, key=first):
        if one.status not in GONE:
            by_slot.setdefault(one.slot, one)
    return [
        _host(settings, slot, by_slot.get(slot), launched_here)
        for slot in range(settings.count + settings.spares)
    ] + [
        Host(f"{settings.cluster}-{part}", (part,), _variables(by_slot.get(slot), launched_here))
        for part, slot in (parts or {}).items()
    ]


def shared(
    cloud: Provider, settings: Settings, machines: Iterable[Machine], known_hosts: str
) -> dict[str, Any]:
    """Return what all hosts have in common; an inventory's own group_vars say otherwise."""
    variables: dict[str, Any] = {
        "ansible_user": cloud.user,
        "provision_provider": cloud.name,
        "ansible_ssh_common_args": (
            f"-o 'UserKnownHostsFile=\"{known_hosts}\"' -o StrictHostKeyChecking=yes"
        ),
    }
    first_slots = range(settings.count + settings.spares)
    living = [one for one in machines if one.status not in GONE and one.slot in first_slots]
    kind = next((one.type for one in living), settings.types[0])
    variables |= cloud.variables(settings)
    if devices := cloud.devices_of(kind):
        count, model = devices
        variables |= {"accelerator_count": count, "accelerator_model": model}
    return variables


def _address(machine: Machine) -> str:
    """Return an address or a name and nothing else: SSH and templates get to see it."""
    try:
        return str(ipaddress.ip_address(machine.address))
    except ValueError:
        return machine.address if NAME.fullmatch(machine.address) else NOWHERE


def _host(
    settings: Settings,
    slot: int,
    machine: Machine | None,
    launched_here: Callable[[Machine], bool],
) -> Host:
    role = ("gpu", "head" if slot == 0 else "worker") if slot < settings.count else ("spare",)
    return Host(f"{settings.cluster}-{slot}", role, _variables(machine, launched_here))


def _variables(machine: Machine | None, launched_here: Callable[[Machine], bool]) -> dict[str, Any]:
    """Return where a machine is and what it is."""
    variables: dict[str, Any] = {"ansible_host": NOWHERE}
    if machine:
        variables = {
            "ansible_host": _address(machine),
            "provision_machine": {
                "id": machine.id,
                "type": machine.type,
                "region": machine.region,
                "status": machine.status,
                "launched_here": launched_here(machine),
            },
        }
        if machine.cents_per_hour:
            variables["provision_machine"]["usd_per_hour"] = machine.cents_per_hour / 100
        if machine.ends_at:
            variables["provision_machine"]["ends_at"] = machine.ends_at
        if machine.port != SSH:
            variables["ansible_port"] = machine.port
        if machine.published:
            published = dict(one.split("=", 1) for one in machine.published.split())
            variables["provision_machine"]["published"] = published
    return variables
