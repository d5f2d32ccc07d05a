"""One look at everything that the role system manages or checks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from ..container import in_container
from . import clock, containers, efa, firewall, limits, links, memory, names
from .tool import Tools


def look(
    concerns: list[str],
    tools: Tools,
    wanted: dict[str, int],
    peers: firewall.Asked,
    cards: Mapping[str, int],
) -> dict[str, Any]:
    """Return the state of the named concerns; changes nothing.

    wanted are limits by kind, cards the EFA cards that a machine must have by its type.
    """
    looks: dict[str, Callable[[], Any]] = {
        "limits": lambda: limits.look(tools, wanted),
        "hugepages": memory.look,
        "efa": lambda: efa.look(tools, cards),
        "hosts_file": names.look,
        "time": clock.look,
        "network": links.look,
        "firewall": lambda: firewall.look(tools, peers),
        "container_runtime": lambda: containers.look(tools),
    }
    return {
        "container": in_container(),
        "devices": links.devices(Path("/")),
        **{name: looks[name]() for name in concerns},
    }
