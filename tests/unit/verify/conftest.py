"""Figures of a healthy measurement, which each test spoils in one place."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

HOSTS = ("gh-01", "gh-02", "gh-03", "gh-04")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "latency")
GIB = 1 << 30


def operations(busbw: float, size: int = GIB) -> dict[str, Any]:
    return {
        name: {
            "operation": "all_reduce" if name == "latency" else name,
            "bytes": 1024 if name == "latency" else size,
            "seconds": 0.1,
            "algbw": busbw,
            "busbw": busbw,
            "wrong": 0,
        }
        for name in OPERATIONS
    }


def pair(first: str, second: str, gbs: float) -> dict[str, Any]:
    figures = {"gbs": gbs, "rails": [gbs], "latency": 1e-5, "wrong": 0}
    return {"first": first, "second": second, **figures}


@pytest.fixture
def found() -> dict[str, Any]:
    """Return what four processors with one rank each measured over links of 1 GB/s."""
    none: dict[str, Any] = {"kind": "none", "members": (), "slow": (), "sides": (), "cards": []}
    return {
        "ranks": 4,
        "hosts": dict.fromkeys(HOSTS, 1),
        "versions": {"torch": "2.13.0", "nccl": "", "device": ""},
        "links": {"speed_mbit": 10000, "driver": "", "physical": False, "link_layers": []},
        "across": operations(0.9),
        "inside": {},
        "pairs": [pair(*ends, 1.0) for ends in itertools.combinations(HOSTS, 2)],
        "rounds": 3,
        "noise": [],
        "culprit": {**none, "reference": 1.0, "conclusive": False},
        "cards": {},
        "retransmitted": dict.fromkeys(HOSTS, 0.0001),
        "transport": [],
        "seconds": 4.0,
    }
