"""What is wanted of Enflame's driver, and one thing that is not as it must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What enflame_driver_info reports.
Look = Mapping[str, Any]
MODULE, PEER_MODULE = "enflame", "enflame_peer_mem"


@dataclass(frozen=True)
class Wanted:
    """What a site wants of a host's driver; an empty version takes any that answers."""

    version: str = ""
    manage: bool = False
    file: str = ""
    sha256: str = ""
    # What the file is started with.
    arguments: tuple[str, ...] = ()
    peer_memory: bool = True
    # How many must answer; 0 is all that the bus shows.
    devices: int = 0

    @property
    def brings_peer_memory(self) -> bool:
        """Tell whether the installer is asked for the module that network cards need."""
        return "--peermem" in self.arguments


@dataclass(frozen=True)
class Mend:
    """Steps that are always done in this order: unload, install, load."""

    unload: bool = False
    install: bool = False
    load: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return self.unload or self.install or self.load


INSTALL = Mend(unload=True, install=True, load=True)
RELOAD = Mend(unload=True, load=True)
LOAD = Mend(load=True)


@dataclass(frozen=True)
class Difference:
    """A difference by its identifier; without a mend only a person can do something about it."""

    identifier: str
    what: str
    expected: str
    found: str
    mend: Mend = Mend()
    fix: str = ""


def together(mends: Iterable[Mend]) -> Mend:
    """Return all steps of several, each once."""
    found = list(mends)
    return Mend(
        unload=any(one.unload for one in found),
        install=any(one.install for one in found),
        load=any(one.load for one in found),
    )


def modules(look: Look, wanted: Wanted, mend: Mend) -> dict[str, list[str]]:
    """Return which modules are unloaded and loaded: the one on top goes first and comes last."""
    loaded = [PEER_MODULE] if PEER_MODULE in look["holders"] else []
    loaded += [MODULE] if look["loaded"] else []
    brought = look["peer_installed"] or (mend.install and wanted.brings_peer_memory)
    peers = wanted.peer_memory and look["rdma"] and brought
    return {
        "unload": loaded if mend.unload else [],
        "load": [MODULE, *([PEER_MODULE] if peers else [])] if mend.load else [],
    }
