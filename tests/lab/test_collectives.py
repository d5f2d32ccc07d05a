"""Real gloo traffic over shaped links: what is slow, lossy, dead or stuck is found and named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vllm_ansible.lab import Lab
from vllm_ansible.lab.ranks import PYTHON, RATE, Ranks
from vllm_ansible.node.collectives.coordinator import CollectiveError
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.links import judge
from vllm_ansible.verify.row import PASS, WARN, Row

pytestmark = pytest.mark.lab

# Seconds for measurements of one kind.
PATIENCE = 240
HOSTS = ("lab1", "lab2", "lab3", "lab4")
CLUSTER = Cluster(dict.fromkeys(HOSTS, 1), "eth0")


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with make_lab(len(HOSTS), "collectives", root=tmp_path_factory.mktemp("lab")) as made:
        for host in HOSTS:
            made.link(host).limit(rate=RATE)
        yield made


@pytest.fixture(scope="module")
def ranks(lab: Lab) -> Iterator[Ranks]:
    if not PYTHON.exists():
        pytest.skip(f"PyTorch for hosts of the lab needs {PYTHON}, the Python that they have")
    with Ranks(lab, HOSTS) as started:
        yield started


def rows(found: dict[str, Any], kept: dict[str, Any] | None = None) -> dict[str, Row]:
    return {row.check: row for row in judge(found, CLUSTER, kept)}


def measured(ranks: Ranks, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first measurement that is as wanted, or else the last one.

    Where processors are short, links of one measurement are slow for a while, and others of the
    next: what is said of them lasts for as long as a link is what was made of it.
    """
    end = time.monotonic() + PATIENCE
    while not wanted(found := ranks.measure()) and time.monotonic() < end:
        pass
    return found


def sound(found: dict[str, Any]) -> bool:
    quick = all(pair["gbs"] * 8000 > 0.7 * 50 for pair in found["pairs"])
    return quick and {row.verdict for row in rows(found).values()} == {PASS}


@pytest.fixture(scope="module")
def healthy(ranks: Ranks) -> dict[str, Any]:
    return measured(ranks, sound)


def test_healthy_links_pass_and_have_the_rate_they_were_given(healthy: dict[str, Any]) -> None:
    assert {row.verdict for row in rows(healthy).values()} == {PASS}
    assert len(healthy["pairs"]) == 6
    for pair in healthy["pairs"]:
        assert 0.7 * 50 < pair["gbs"] * 8000 < 1.05 * 50, pair
    assert healthy["across"]["all_reduce"]["busbw"] * 8000 < 1.05 * 50


# Without an accelerator what is slow is a warning; tests/unit/verify holds the refusal.
def test_a_pair_at_half_speed_is_named(lab: Lab, ranks: Ranks, healthy: dict[str, Any]) -> None:
    def named(found: dict[str, Any]) -> bool:
        row = rows(found, healthy)["links"]
        return (row.verdict, row.where) == (WARN, "lab2, lab3")

    lab.link("lab2", "lab3").limit(rate="25mbit")
    try:
        row = rows(measured(ranks, named), healthy)["links"]
    finally:
        lab.link("lab2", "lab3").restore()
    assert (row.verdict, row.where) == (WARN, "lab2, lab3"), row
    assert row.what == "the path between lab2 and lab3"


def test_a_host_at_a_third_is_named(lab: Lab, ranks: Ranks, healthy: dict[str, Any]) -> None:
    def named(found: dict[str, Any]) -> bool:
        row = rows(found, healthy)["links"]
        return (row.verdict, row.where) == (WARN, "lab4")

    lab.link("lab4").limit(rate="16mbit")
    try:
        found = rows(measured(ranks, named), healthy)
    finally:
        lab.link("lab4").limit(rate=RATE)
    assert (found["links"].verdict, found["links"].where) == (WARN, "lab4"), found["links"]
    assert found["bandwidth"].verdict == WARN


def test_two_percent_of_loss_is_told(lab: Lab, ranks: Ranks) -> None:
    lab.link("lab1").limit(rate=RATE, loss=2)
    try:
        row = rows(measured(ranks, lambda found: rows(found)["resent"].verdict == WARN))["resent"]
    finally:
        lab.link("lab1").limit(rate=RATE)
    assert row.verdict == WARN, row


# Beside the ranks above, whose store has its port on the first host.
TWO = HOSTS[2:]


def test_a_rank_that_is_killed_is_named(lab: Lab) -> None:
    with Ranks(lab, TWO) as two:
        lab.run("lab4", ["pkill", "--signal=KILL", "--full", "--newest", "[-]-local-rank=0"])
        with pytest.raises(CollectiveError) as caught:
            two.measure()
    assert caught.value.details["where"] == "lab4"


def test_ranks_that_cannot_talk_are_named_and_end(lab: Lab) -> None:
    with Ranks(lab, TWO) as two:
        # Longer than one of them may be given no time.
        two.lead.silence = 10
        before = {host: ranks_on(lab, host) for host in TWO}
        lab.cut(*TWO)
        try:
            with pytest.raises(CollectiveError) as caught:
                two.measure()
        finally:
            lab.link(*TWO).restore()
    assert caught.value.details["where"] == "lab3, lab4"
    for host in TWO:
        assert ranks_on(lab, host) < before[host]


def ranks_on(lab: Lab, host: str) -> set[str]:
    return set(lab.run(host, ["pgrep", "--full", "[-]-local-rank"], check=False).stdout.split())
