"""What the watch is told: one file, and the key in another that only the service may read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rank:
    """One server of the engine, by the name that HAProxy has for it."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Settings:
    """The engine's ranks, and how they are watched."""

    model: str
    key: str
    ranks: tuple[Rank, ...]
    # A rank that computes nothing for so long while it is asked is down.
    answer_seconds: float
    # When no client has asked for so long, ranks are asked seldom, too; 0: never.
    quiet_seconds: float
    # The longest that any answer may take.
    silence_seconds: float
    agent_port: int
    figures_socket: str
    # Of HAProxy, read-only.
    stats_socket: str
    # Ranks step together or not at all: who has no request is given some.
    pump: bool
    pump_tokens: int


def read(path: str) -> Settings:
    """Return the settings that a file holds."""
    told = json.loads(Path(path).read_text())
    key = Path(told.pop("key_file")).read_text().strip()
    ranks = tuple(Rank(**one) for one in told.pop("ranks"))
    return Settings(key=key, ranks=ranks, **told)
