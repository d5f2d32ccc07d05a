"""The kinds of accelerators that a host is asked for, in this order.

Each is named here since Ansible sends to hosts what is imported by name.
"""

from __future__ import annotations

from typing import Optional

from .host_platform import HostPlatform
from .platforms import enflame, nvidia

PLATFORMS: tuple[HostPlatform, ...] = (nvidia.PLATFORM, enflame.PLATFORM)


def host_platform(name: str) -> Optional[HostPlatform]:
    """Return a kind by its name; None for one of which a host has nothing to say."""
    return next((one for one in PLATFORMS if one.name == name), None)
