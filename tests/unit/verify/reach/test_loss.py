"""Loss is counted by direction and put down to a host or a pair."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.verify.reach.culprits import culprits
from vllm_ansible.verify.reach.loss import Count, Pair, attribute, counts

HOSTS = ("a", "b", "c", "d")


def probe(sent: int = 400, arrived: int = 400, returned: int = 400, **more: int) -> dict[str, Any]:
    found = {"sent": sent, "arrived": arrived, "returned": returned}
    return {**found, "dropped_there": 0, "dropped_here": 0, **more}


def network(*lossy: Pair, lost: int = 16) -> dict[Pair, Count]:
    return {pair: Count(800, lost if pair in lossy else 0) for pair in permutations(HOSTS, 2)}


def test_directions_are_told_apart() -> None:
    found, silent = counts({("a", "b"): probe(arrived=390, returned=385)})
    assert found == {("a", "b"): Count(400, 10), ("b", "a"): Count(390, 5)}
    assert silent == []


def test_both_ends_count_for_a_direction() -> None:
    found, _ = counts(
        {("a", "b"): probe(arrived=399, returned=399), ("b", "a"): probe(returned=398)}
    )
    assert found["a", "b"] == Count(800, 3)


def test_what_a_busy_host_dropped_itself_is_no_loss_of_the_network() -> None:
    probes = {("a", "b"): probe(arrived=390, returned=380, dropped_there=10, dropped_here=25)}
    found, _ = counts(probes)
    assert [one.lost for one in found.values()] == [0, 0]


@pytest.mark.parametrize("loss", [probe(arrived=0, returned=0), probe(returned=0)])
def test_a_firewall_that_lets_no_datagram_through_is_not_loss(loss: dict[str, Any]) -> None:
    assert counts({("a", "b"): loss}) == ({}, [("a", "b")])


@pytest.mark.parametrize(
    ("sent", "lost", "lossy"), [(400, 1, False), (400, 2, True), (800, 3, False), (800, 4, True)]
)
def test_one_datagram_is_chance_and_half_a_percent_is_not(
    sent: int, lost: int, lossy: bool
) -> None:
    assert Count(sent, lost).lossy is lossy


def test_a_healthy_network_blames_nobody() -> None:
    assert attribute(network()) == []


def test_a_host_with_a_bad_link_is_named_and_its_peers_are_not() -> None:
    bad = [pair for pair in permutations(HOSTS, 2) if "c" in pair]
    (cause,) = attribute(network(*bad))
    assert cause.hosts == ("c",)
    assert set(cause.directions) == set(bad)


def test_a_host_that_only_receives_badly_is_named() -> None:
    (cause,) = attribute(network(("a", "c"), ("b", "c"), ("d", "c")))
    assert (cause.hosts, len(cause.directions)) == (("c",), 3)


def test_a_bad_path_between_two_is_a_pair() -> None:
    (cause,) = attribute(network(("a", "c"), ("c", "a")))
    assert cause.hosts == ("a", "c")


def test_of_two_hosts_alone_none_is_blamed() -> None:
    (cause,) = attribute({("a", "b"): Count(800, 16), ("b", "a"): Count(800, 0)})
    assert (cause.hosts, cause.directions) == (("a", "b"), (("a", "b"),))


pairs = [frozenset(pair) for pair in combinations("abcdef", 2)]


@given(st.sets(st.sampled_from(pairs)))
def test_every_bad_pair_has_exactly_one_culprit(bad: set[frozenset[str]]) -> None:
    found = culprits(bad, pairs)
    explained = [pair for of_one in found.values() for pair in of_one]
    assert sorted(map(sorted, explained)) == sorted(map(sorted, bad))
    assert all(set(hosts) <= pair for hosts, of_one in found.items() for pair in of_one)


@given(st.sampled_from("abcdef"))
def test_a_single_bad_host_is_the_only_culprit(host: str) -> None:
    assert list(culprits({pair for pair in pairs if host in pair}, pairs)) == [(host,)]
