"""What a kind of accelerator has checked of its own: a module in `platforms` with a `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.verify.preflight import platforms as rooms
from vllm_ansible.verify.preflight.check import Check, Cluster, Row

Device = Mapping[str, Any]
Look = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnChecks:
    """Checks of one kind of accelerator, skipped on all others.

    `devices` are of a host's devices, `versions` of what is installed for them. `count` is given
    cluster, host, its look at devices and the check that all kinds have; `rows` host, that look,
    the devices that answer and the check of memory cells that all have. `installed` is given the
    cluster and its hosts of this kind. `peer_memory` tells what of the ways by which network cards
    reach a device's memory is wanted, found (nothing where none is) and the fix. `who` is the
    command that says who holds a device, `driver_fix` what makes drivers equal.
    """

    devices: tuple[Check, ...]
    versions: tuple[Check, ...]
    count: Callable[[Cluster, str, Look, Check], Row]
    rows: Callable[[str, Look, list[Device], Check], list[Row]]
    installed: Callable[[Cluster, Sequence[str]], list[Row]]
    peer_memory: Callable[[Look], tuple[str, str, str]]
    who: str
    driver_fix: str


@lru_cache(maxsize=1)
def own_checks() -> Mapping[str, OwnChecks]:
    """Return the checks of every kind that has some, by its name."""
    found = {}
    for module in sorted(one.name for one in iter_modules(rooms.__path__)):
        checks = import_module(f".{module}", rooms.__name__).CHECKS
        assert isinstance(checks, OwnChecks)  # noqa: S101  a module of this package
        found[module] = checks
    return found


def alone(name: str) -> str:
    """Return why checks of a kind are skipped elsewhere."""
    return f"of {platform(name).title}'s devices alone"
