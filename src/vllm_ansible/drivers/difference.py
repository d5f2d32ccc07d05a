"""One thing about a driver that is not as it must be, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.drivers.mend import Mend
from vllm_ansible.drivers.repository import Repository

# What nvidia_driver_info reports.
Look = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What a site wants of a host's driver; repository is known only where it is managed."""

    branch: int
    manage: bool = False
    # The oldest branch that is no difference; 0 is the branch itself.
    oldest: int = 0
    packages: tuple[str, ...] = ("nvidia-open",)
    dcgm: bool = True
    repository: Repository | None = None


@dataclass(frozen=True)
class Difference:
    """A difference by its identifier, told as a gate tells it, with what mends it."""

    identifier: str
    what: str
    expected: str
    found: str
    mend: Mend
