"""The cards of EFA, its software, and what libfabric finds of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from . import efa_cards as efa
from .tool import Tools

# AWS's health checks look three times: some machines show their last cards late after a boot.
TRIES, PAUSE_SECONDS = 3, 5.0
PROGRAM = "opt/amazon/efa/bin/fi_info"


def look(
    tools: Tools,
    wanted: Mapping[str, int],
    root: Path = Path("/"),
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return what node.efa finds, and `domains`, those that `fi_info -p efa` lists.

    wanted: how many cards a machine must have, by its type; late ones are waited for. domains is
    None where there is no fi_info, and empty where it finds nothing.
    """
    found = efa.look(root)
    for _ in range(TRIES):
        if found["cards"] >= wanted.get(found["machine"], 0):
            break
        sleep(PAUSE_SECONDS)
        found = efa.look(root)
    return {**found, "domains": domains(tools, root) if found["cards"] else None}


def domains(tools: Tools, root: Path) -> Optional[list[str]]:
    """Return the names of the domains that libfabric's EFA provider has, each once."""
    own = root / PROGRAM
    program = str(own) if own.exists() else tools.find("fi_info")
    if program is None:
        return None
    status, said, _ = tools.run([program, "-p", "efa"])
    if status != 0:
        return []
    fields = (line.strip().partition(": ") for line in said.splitlines())
    return sorted({value for name, _, value in fields if name == "domain"})
