"""Every judgement on links passes for healthy figures and fails for what it is there to find."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.collectives.culprit import find
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.links import evidence, judge
from vllm_ansible.verify.row import (
    ACCEPTED,
    FAIL,
    PASS,
    WARN,
    Row,
    failure,
    warnings,
    with_accepted,
)

from .conftest import HOSTS, operations, pair

CPUS = Cluster(dict.fromkeys(HOSTS, 1), "eth1")
# One accelerator each, over TCP: no figure of such devices is published.
DEVICES = replace(CPUS, device="S60")
DATA = Path(__file__).parents[2] / "data" / "collectives"


def rows(found: dict[str, Any], cluster: Cluster = DEVICES, **kept: Any) -> dict[str, Row]:
    return {f"{row.check}@{row.where}": row for row in judge(found, cluster, **kept)}


def one(found: dict[str, Any], check: str, cluster: Cluster = DEVICES, **kept: Any) -> Row:
    return next(row for row in judge(found, cluster, **kept) if row.check == check)


def spoil(found: dict[str, Any], **rates: float) -> None:
    """Give pairs of hosts, named like gh01_gh02, other rates, and search again."""
    for ends, rate in rates.items():
        names = ends.replace("gh", "gh-").split("_")
        found["pairs"] = [
            pair(*names, rate) if [old["first"], old["second"]] == names else old
            for old in found["pairs"]
        ]
    culprit = find({(old["first"], old["second"]): old["gbs"] for old in found["pairs"]})
    found["culprit"] = {**asdict(culprit), "cards": []}


def test_healthy_links_pass(found: dict[str, Any]) -> None:
    assert {row.verdict for row in judge(found, CPUS)} == {PASS}
    told = evidence(found, judge(found, CPUS))
    assert "6 pairs in 3 rounds, slowest gh-01 - gh-02 1.0 GB/s" in told["summary"]


def test_accelerators_without_published_figures_are_held_against_their_own_first_run(
    found: dict[str, Any],
) -> None:
    gcus = replace(CPUS, hosts=dict.fromkeys(HOSTS, 8), device="S60", link_layers=("InfiniBand",))
    found["inside"] = {host: operations(20.0) for host in HOSTS}
    found["transport"] = []
    first = judge(found, gcus)
    assert {row.verdict for row in first if row.check == "bandwidth"} == {PASS}
    kept = {"across": operations(0.9), "inside": {host: operations(20.0) for host in HOSTS}}
    found["inside"]["gh-02"] = operations(17.0)
    later = {row.where: row for row in judge(found, gcus, kept) if row.check == "bandwidth"}
    assert (later["gh-01"].verdict, later["gh-02"].verdict) == (PASS, FAIL)
    assert "17.0 GB/s" in later["gh-02"].found


def test_one_wrong_element_fails(found: dict[str, Any]) -> None:
    found["across"]["all_to_all"]["wrong"] = 3
    row = one(found, "results")
    assert (row.verdict, row.found) == (FAIL, "3 in all_to_all over all hosts")
    found["pairs"][2]["wrong"] = 1
    assert one(found, "results").found.endswith("1 in gh-01 - gh-04")


def test_a_slow_host_is_named(found: dict[str, Any]) -> None:
    spoil(found, gh01_gh03=0.3, gh02_gh03=0.31, gh03_gh04=0.32)
    row = one(found, "links")
    assert (row.verdict, row.where) == (FAIL, "gh-03")
    assert row.found == "300.0 MB/s with every other host it met"
    assert "ethtool eth1" in row.fix
    assert "links@gh-03" in row.fix


def test_one_card_of_a_slow_host_is_named(found: dict[str, Any]) -> None:
    spoil(found, gh01_gh03=0.3, gh02_gh03=0.31, gh03_gh04=0.32)
    found["culprit"]["cards"] = [5]
    assert one(found, "links").what == "the link of card 5 of gh-03"


def test_a_slow_pair_is_named_with_both_ends(found: dict[str, Any]) -> None:
    spoil(found, gh01_gh04=0.4)
    row = one(found, "links")
    assert (row.verdict, row.where) == (FAIL, "gh-01, gh-04")
    assert row.found == "400.0 MB/s; both are fast with others"


def test_a_slow_uplink_is_named_with_its_sides(found: dict[str, Any]) -> None:
    spoil(found, gh01_gh03=0.3, gh01_gh04=0.3, gh02_gh03=0.3, gh02_gh04=0.3)
    row = one(found, "links")
    assert row.what == "what joins gh-01, gh-02 with gh-03, gh-04"
    assert (row.verdict, row.found) == (FAIL, "300.0 MB/s across, 1.0 GB/s within each side")


def test_several_slow_links_are_all_named(found: dict[str, Any]) -> None:
    spoil(found, gh01_gh02=0.3, gh03_gh04=0.2)
    row = one(found, "links")
    assert row.verdict == FAIL
    assert row.found == "slow: gh-03 - gh-04, gh-01 - gh-02; the slowest has 200.0 MB/s"


def test_packets_sent_again_are_a_warning(found: dict[str, Any]) -> None:
    found["retransmitted"]["gh-02"] = 0.011
    row = one(found, "resent")
    assert (row.verdict, row.where, row.found) == (WARN, "gh-02", "1.10% on gh-02")


def test_an_unknown_cluster_is_compared_with_its_own_first_run(found: dict[str, Any]) -> None:
    kept = {"across": operations(0.9), "inside": {}}
    assert one(found, "bandwidth", kept=kept).verdict == PASS
    found["across"] = operations(0.7)
    assert one(found, "bandwidth", kept=kept).verdict == WARN
    found["across"] = operations(0.5)
    row = one(found, "bandwidth", kept=kept)
    assert row.verdict == FAIL
    assert row.found == "500.0 MB/s of bus bandwidth"


def test_an_ethernet_link_that_can_be_believed_is_a_measure(found: dict[str, Any]) -> None:
    tenth = replace(DEVICES, link=1.25)
    found["across"] = operations(1.1)
    assert one(found, "bandwidth", tenth).verdict == PASS
    found["across"] = operations(0.4)
    assert one(found, "bandwidth", tenth).verdict == FAIL


def test_slow_ranks_on_cpus_are_a_warning(found: dict[str, Any]) -> None:
    """A busy machine cannot be told from a slow link; on accelerators the same figures fail."""
    spoil(found, gh01_gh04=0.4)
    found["across"] = operations(0.5)
    rates = {("0", "1"): 1.0, ("0", "2"): 0.1, ("1", "2"): 1.0}
    pairs = [pair(*ends, rate) for ends, rate in rates.items()]
    found["cards"] = {"gh-02": {"pairs": pairs, "culprit": {**asdict(find(rates)), "cards": []}}}
    kept = {"across": operations(0.9), "inside": {}}
    slow = {"bandwidth@all hosts", "links@gh-01, gh-04", "cards@gh-02"}

    told = rows(found, CPUS, kept=kept)
    assert {where for where, row in told.items() if row.verdict == WARN} == slow
    assert failure(told.values()) == {}
    assert len(warnings(told.values())) == len(slow)
    assert "other load on these CPUs" in told["links@gh-01, gh-04"].cause
    told = rows(found, DEVICES, kept=kept)
    assert {where for where, row in told.items() if row.verdict == FAIL} == slow


def test_a_wrong_element_fails_on_cpus_too(found: dict[str, Any]) -> None:
    found["pairs"][2]["wrong"] = 1
    assert one(found, "results", CPUS).verdict == FAIL


@pytest.fixture
def h200() -> dict[str, Any]:
    """Return what our own ranks measured on four H200 of one host."""
    found: dict[str, Any] = json.loads((DATA / "h200-ranks-one-host.json").read_text())
    return found


NODE = Cluster({"gh-01": 4}, "ens1", "NVIDIA H200")


def test_real_figures_of_four_h200_pass(h200: dict[str, Any]) -> None:
    assert {row.verdict for row in judge(h200, NODE)} == {PASS}
    row = one(h200, "bandwidth", NODE)
    assert row.found == "336.7 GB/s of bus bandwidth"
    assert row.expected.startswith("at least")


def test_half_of_what_is_published_fails(h200: dict[str, Any]) -> None:
    h200["inside"]["gh-01"]["all_reduce"]["busbw"] /= 2
    row = one(h200, "bandwidth", NODE)
    assert (row.verdict, row.where) == (FAIL, "gh-01")
    assert "one bad node" in row.fix


def test_another_transport_than_the_devices_have_fails(h200: dict[str, Any]) -> None:
    h200["transport"] = [line.replace("via P2P/CUMEM", "via SHM") for line in h200["transport"]]
    row = one(h200, "bandwidth", NODE)
    assert row.verdict == FAIL
    assert "inside a node NCCL uses SHM" in row.found


def test_a_card_that_is_slow_with_the_others_is_named(h200: dict[str, Any]) -> None:
    rates = {}
    for old in h200["cards"]["gh-01"]["pairs"]:
        old["gbs"] = 120.0 if "2" in (old["first"], old["second"]) else old["gbs"]
        rates[old["first"], old["second"]] = old["gbs"]
    h200["cards"]["gh-01"]["culprit"] = asdict(find(rates))
    row = one(h200, "cards", NODE)
    assert (row.verdict, row.where) == (FAIL, "gh-01")
    assert row.found.startswith("card 2: 120.0 GB/s")


def test_sockets_between_hosts_fail_where_there_is_a_fabric() -> None:
    found = json.loads((DATA / "h200-ranks-two-hosts.json").read_text())
    hosts = {"gh-01": 2, "gh-02": 2}
    ethernet = Cluster(hosts, "ens1", "NVIDIA H200")
    assert one(found, "bandwidth", ethernet).verdict == PASS
    fabric = replace(ethernet, link_layers=("InfiniBand",) * 2, ports=100.0)
    row = one(found, "bandwidth", fabric)
    assert row.verdict == FAIL
    assert "across nodes NCCL uses TCP sockets" in row.found


def test_what_is_accepted_by_name_lets_pass() -> None:
    slow = Row("links", "gh-07", FAIL, "the link of gh-07")
    assert [one.verdict for one in with_accepted([slow], [])] == [FAIL]
    assert [one.verdict for one in with_accepted([slow], ["links@gh-07"])] == [ACCEPTED]
    assert [one.verdict for one in with_accepted([slow], ["links"])] == [ACCEPTED]
    assert [one.verdict for one in with_accepted([slow], ["links@gh-08"])] == [FAIL]
