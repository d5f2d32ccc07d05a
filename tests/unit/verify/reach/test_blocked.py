"""Blocked connections are put down to what they have in common."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.verify.reach.blocked import (
    EVERYONE,
    HOST,
    INTO,
    OUT_OF,
    PAIR,
    PORTS,
    PORTS_INTO,
    PORTS_OUT_OF,
    Blocked,
    Pair,
    attribute,
)

PLANNED = frozenset({8000, 20000, 20001, 20020})
FOUR = ("a", "b", "c", "d")


def tried(hosts: tuple[str, ...] = FOUR) -> dict[Pair, frozenset[int]]:
    return dict.fromkeys(permutations(hosts, 2), PLANNED)


def failing(*cells: tuple[str, str, set[int]]) -> dict[Pair, frozenset[int]]:
    return {(one, other): frozenset(ports) for one, other, ports in cells}


def every(pairs: list[Pair], ports: frozenset[int] = PLANNED) -> dict[Pair, frozenset[int]]:
    return dict.fromkeys(pairs, ports)


def said(causes: list[Blocked]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(one.scope, one.sources, one.targets) for one in causes]


def test_nothing_blocked_has_no_cause() -> None:
    assert attribute(tried(), {}) == []
    assert attribute(tried(), every(list(tried()), frozenset())) == []


def test_a_host_that_is_cut_off_is_one_cause() -> None:
    pairs = [pair for pair in tried() if "b" in pair]
    assert said(attribute(tried(), every(pairs))) == [(HOST, ("b",), ("a", "c", "d"))]


def test_two_hosts_that_are_cut_off_are_two_causes() -> None:
    pairs = [pair for pair in tried() if {"b", "c"} & set(pair)]
    assert [one.sources for one in attribute(tried(), every(pairs))] == [("b",), ("c",)]


def test_a_host_that_nobody_reaches_but_that_reaches_all_has_a_firewall() -> None:
    pairs = [pair for pair in tried() if pair[1] == "c"]
    assert said(attribute(tried(), every(pairs))) == [(INTO, ("a", "b", "d"), ("c",))]


def test_a_host_that_reaches_nobody_is_told_from_one_that_nobody_reaches() -> None:
    pairs = [pair for pair in tried() if pair[0] == "c"]
    assert said(attribute(tried(), every(pairs))) == [(OUT_OF, ("c",), ("a", "b", "d"))]


def test_a_cut_pair_is_one_cause_and_so_is_one_direction_of_it() -> None:
    (both,) = attribute(tried(), every([("a", "d"), ("d", "a")]))
    assert (both.scope, both.both_ways) == (PAIR, True)
    (one_way,) = attribute(tried(), every([("d", "a")]))
    assert said([one_way]) == [(PAIR, ("d",), ("a",))] and not one_way.both_ways


def test_two_hosts_alone_are_a_pair() -> None:
    two = tried(("a", "b"))
    (cause,) = attribute(two, every(list(two)))
    assert (cause.scope, cause.both_ways) == (PAIR, True)


def test_where_nobody_reaches_anybody_no_host_is_blamed() -> None:
    assert [one.scope for one in attribute(tried(), every(list(tried())))] == [EVERYONE]


def test_ports_that_everyone_misses_are_the_targets_firewall() -> None:
    found = failing(*((name, "b", {20001}) for name in "acd"))
    assert said(attribute(tried(), found)) == [(PORTS_INTO, ("a", "c", "d"), ("b",))]


def test_the_same_ports_of_all_hosts_are_told_once() -> None:
    (cause,) = attribute(tried(), every(list(tried()), frozenset({20001})))
    assert (cause.scope, set(cause.targets), cause.ports) == (PORTS_INTO, set(FOUR), (20001,))


def test_ports_that_one_host_misses_everywhere_are_its_own_firewall() -> None:
    found = failing(*(("a", name, {8000}) for name in "bcd"))
    assert said(attribute(tried(), found)) == [(PORTS_OUT_OF, ("a",), ("b", "c", "d"))]


def test_ports_between_two_are_told_of_both_directions_at_once() -> None:
    found = failing(("a", "b", {20020}), ("b", "a", {20020}), ("c", "a", {8000}))
    pair, single = attribute(tried(), found)
    assert (pair.scope, pair.both_ways, pair.ports) == (PORTS, True, (20020,))
    assert (single.scope, single.sources, single.both_ways) == (PORTS, ("c",), False)


def test_a_dead_host_does_not_hide_a_firewall_of_another() -> None:
    dead = every([pair for pair in tried() if "a" in pair])
    found = {**dead, **failing(("c", "b", {8000}), ("d", "b", {8000}))}
    assert said(attribute(tried(), found)) == [
        (HOST, ("a",), ("b", "c", "d")),
        (PORTS_INTO, ("c", "d"), ("b",)),
    ]


cells = st.sets(
    st.tuples(st.sampled_from(list(permutations(FOUR, 2))), st.sampled_from(sorted(PLANNED)))
)


@given(cells)
def test_causes_explain_every_blocked_connection_and_no_other(
    blocked: set[tuple[Pair, int]],
) -> None:
    failed: dict[Pair, frozenset[int]] = {}
    for pair, port in blocked:
        failed[pair] = failed.get(pair, frozenset()) | {port}
    explained = {
        (pair, port)
        for cause in attribute(tried(), failed)
        for pair in cause.pairs()
        for port in cause.ports
    }
    assert explained == blocked
