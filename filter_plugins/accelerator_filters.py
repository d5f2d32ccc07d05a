"""What a role asks about the kind of accelerator of its host, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.accelerators.platform import has_devices, platform, platforms


def platform_of(name: str) -> dict[str, Any]:
    """Return what is plain data of a kind: site_host.accelerator | platform_of.

    Also which kinds have a shipped lock, for who has none.
    """
    found: dict[str, Any] = {}
    kind = platform(name)
    for field in fields(kind):
        value = getattr(kind, field.name)
        if isinstance(value, tuple):
            found[field.name] = list(value)
        elif isinstance(value, str | bool | int):
            found[field.name] = value
    return {**found, "locked_kinds": [one.name for one in platforms().values() if one.locks]}


def with_devices(hosts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the hosts that compute with devices: site_hosts | with_devices."""
    return [host for host in hosts if has_devices(host["accelerator"])]


def collective_variables(name: str, interface: str) -> dict[str, str]:
    """Return what ranks of a measurement need for the kind's own library."""
    return dict(platform(name).collective_variables(str(interface)))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "collective_variables": collective_variables,
            "platform_of": platform_of,
            "with_devices": with_devices,
        }
