"""Limits of open files and locked memory: of this login, and of units that systemd starts."""

from __future__ import annotations

import os
import resource
from typing import Any, Optional

from .tool import Tools

# -1 is without limit, as in the resource module.
UNLIMITED = resource.RLIM_INFINITY
KINDS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK}
PROPERTIES = {
    f"DefaultLimit{kind.upper()}{soft}": (kind, place)
    for kind in KINDS
    for place, soft in enumerate(("Soft", ""))
}


def look(tools: Tools, wanted: dict[str, int]) -> dict[str, Any]:
    """Return soft and hard limits of this login and of systemd's units, and what can be set.

    wanted are numbers of open files and bytes of locked memory. settable is the highest that a
    login may be given: pam_limits refuses a login whose limits cannot be set.
    """
    login = {kind: list(resource.getrlimit(number)) for kind, number in KINDS.items()}
    return {
        "login": login,
        "units": of_units(tools.ask("systemctl", "show", f"--property={','.join(PROPERTIES)}")),
        "settable": {
            kind: value if can_set(KINDS[kind], value) else login[kind][1]
            for kind, value in wanted.items()
        },
    }


def of_units(said: Optional[str]) -> dict[str, list[int]]:
    """Return soft and hard default limits of units; empty where systemd does not answer."""
    found: dict[str, list[int]] = {}
    for line in (said or "").splitlines():
        name, _, value = line.partition("=")
        if name in PROPERTIES:
            kind, place = PROPERTIES[name]
            pair = found.setdefault(kind, [UNLIMITED, UNLIMITED])
            pair[place] = int(value) if value.isdigit() else UNLIMITED
    return found


def can_set(kind: int, value: int) -> bool:
    """Tell whether this user may set a limit, by doing so in a child that ends at once."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
