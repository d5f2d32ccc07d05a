"""Eight hosts, again and again: every fault found, and nothing found where nothing is wrong."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vllm_ansible.lab import Lab
from vllm_ansible.lab.ranks import Ranks
from vllm_ansible.node.collectives.operations import Wishes
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.links import judge
from vllm_ansible.verify.row import FAIL

pytestmark = [pytest.mark.lab, pytest.mark.soak]

HOSTS = tuple(f"lab{number}" for number in range(1, 9))
# Judged as accelerators are: without them what is slow is a warning.
CLUSTER = Cluster(dict.fromkeys(HOSTS, 1), "eth0", "S60")
MBIT = 40
CHANCE = random.Random(2026)  # noqa: S311 repeatable, no secret


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with make_lab(len(HOSTS), "soak", root=tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def ranks(lab: Lab) -> Iterator[Ranks]:
    with Ranks(lab, HOSTS, wishes=Wishes(iterations=3)) as started:
        yield started


@pytest.fixture(scope="module")
def healthy(lab: Lab, ranks: Ranks) -> dict[str, Any]:
    for host in HOSTS:
        lab.link(host).limit(rate=f"{MBIT}mbit")
    return ranks.measure()


def named(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Return where something fails."""
    return [row.where for row in judge(found, CLUSTER, kept) if row.verdict == FAIL]


@pytest.mark.parametrize("pair", CHANCE.sample(list(itertools.combinations(HOSTS, 2)), 20))
def test_a_link_at_half_speed(
    pair: tuple[str, str], lab: Lab, ranks: Ranks, healthy: dict[str, Any]
) -> None:
    lab.link(*pair).limit(rate=f"{MBIT // 2}mbit")
    try:
        assert ", ".join(pair) in named(ranks.measure(), healthy)
    finally:
        lab.link(*pair).restore()


@pytest.mark.parametrize("host", CHANCE.sample(HOSTS, 3))
def test_a_host_at_a_third(host: str, lab: Lab, ranks: Ranks, healthy: dict[str, Any]) -> None:
    lab.link(host).limit(rate=f"{MBIT // 3}mbit")
    try:
        assert host in named(ranks.measure(), healthy)
    finally:
        lab.link(host).limit(rate=f"{MBIT}mbit")


def test_fifty_healthy_runs_raise_no_alarm(lab: Lab, ranks: Ranks, healthy: dict[str, Any]) -> None:
    alarms, started = [], time.monotonic()
    for number in range(50):
        for host in HOSTS:
            rate = MBIT * CHANCE.uniform(0.8, 1.2)
            lab.link(host).limit(rate=f"{round(rate * 1000)}kbit")
        found = ranks.measure()
        alarms += [(number, place, found["noise"]) for place in named(found, healthy)]
    print(f"50 runs in {time.monotonic() - started:.0f} s, alarms: {alarms}")
    assert not alarms
