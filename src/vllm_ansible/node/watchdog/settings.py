"""What a watchdog is told: the engines of its host, where they answer, and their other hosts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Server:
    """Where an engine answers. `local`: on this host, so that this watchdog asks it."""

    host: str
    address: str
    port: int
    served_name: str
    local: bool


@dataclass(frozen=True)
class Peer:
    """Another host of an engine, and a port of it that answers or refuses."""

    host: str
    address: str
    port: int


@dataclass(frozen=True)
class Engine:
    """An engine with ranks on this host; `ranks` are theirs. No server where a router asks it."""

    name: str
    ranks: tuple[int, ...]
    server: Optional[Server] = None
    peers: tuple[Peer, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Seconds are those after which a question without an answer counts as none."""

    host: str
    cluster_dir: str
    state_dir: str
    key_file: str
    py_spy: str
    answer_seconds: float
    on_processors: bool
    engines: tuple[Engine, ...] = field(default=())

    def engine_of(self, process: str) -> Optional[Engine]:
        """Return the engine that a recorded process is of: the longest name that begins its own."""
        found = [one for one in self.engines if process.startswith(f"{one.name}-")]
        return max(found, key=lambda one: len(one.name)) if found else None


def read(path: str) -> Settings:
    """Read the settings that the role has written."""
    with open(path, encoding="utf-8") as handle:
        content = json.load(handle)
    engines = [
        Engine(
            name=one["name"],
            ranks=tuple(one["ranks"]),
            server=Server(**one["server"]) if one.get("server") else None,
            peers=tuple(Peer(**peer) for peer in one["peers"]),
        )
        for one in content.pop("engines")
    ]
    return Settings(**content, engines=tuple(engines))
