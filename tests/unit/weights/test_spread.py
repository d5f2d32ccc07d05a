"""Who gets which file from whom."""

from __future__ import annotations

from collections import Counter

import pytest

from vllm_ansible.weights.spread import chain, upstream, width, writers

HOSTS = ["a", "b", "c", "d"]
NAMES = [f"shard-{number}" for number in range(8)]


def test_files_enter_at_each_host_in_turn() -> None:
    entries = [chain(number, name, HOSTS, {}, HOSTS)[0] for number, name in enumerate(NAMES)]
    assert Counter(entries) == dict.fromkeys(HOSTS, 2)


def test_only_hosts_that_may_go_outside_are_entered() -> None:
    entries = {chain(number, name, HOSTS, {}, ["b"])[0] for number, name in enumerate(NAMES)}
    assert entries == {"b"}


def test_where_nobody_may_go_outside_the_first_one_is_asked_to() -> None:
    assert chain(5, "shard-5", HOSTS, {}, ["elsewhere"])[0] == "a"


def test_every_host_sends_a_file_to_one_other_at_most() -> None:
    for number, name in enumerate(NAMES):
        nearest = [upstream(host, NAMES, HOSTS, {}, HOSTS)[name]["before"][:1] for host in HOSTS]
        assert max(Counter(host for way in nearest for host in way).values()) == 1, number


@pytest.mark.parametrize("host", ["a", "c"])
def test_what_a_host_has_it_gives_to_the_others(host: str) -> None:
    ways = {other: upstream(other, NAMES, HOSTS, {host: NAMES}, HOSTS) for other in HOSTS}
    assert all(way["before"] == [] for way in ways[host].values())
    for other in set(HOSTS) - {host}:
        assert all(way["before"][-1] == host for way in ways[other].values())


def test_holders_are_asked_in_turn_and_stand_in_for_each_other() -> None:
    has = {"a": NAMES, "b": NAMES}
    first = [upstream("c", NAMES, HOSTS, has, HOSTS)[name]["before"] for name in NAMES[:2]]
    assert {way[-2] for way in first} == {"a", "b"}
    mends = upstream("a", NAMES, HOSTS, has, HOSTS)
    assert all([*way["before"], *way["beside"]] == ["b"] for way in mends.values())


@pytest.mark.parametrize(
    ("outside", "asked", "expected"),
    [
        (1, (0, 0), (16, 16)),
        (3, (0, 0), (6, 18)),
        (16, (0, 0), (1, 16)),
        (128, (0, 0), (1, 64)),
        (0, (0, 0), (16, 4)),
        (4, (8, 0), (8, 32)),
        (4, (0, 5), (4, 5)),
    ],
)
def test_a_host_takes_part_in_every_file_that_arrives_anywhere(
    outside: int, asked: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert width(outside, *asked) == expected


def test_of_hosts_that_share_a_directory_one_brings_all() -> None:
    marks = {"a": "x", "b": "y", "c": "x", "d": ""}
    found = writers(["a", "b", "c", "d"], marks, ["a", "b", "c", "d"])
    assert found == {"a": "a", "b": "b", "c": "a", "d": "d"}


def test_of_hosts_that_share_a_directory_one_that_may_go_outside_brings_all() -> None:
    assert set(writers(["a", "b", "c"], dict.fromkeys("abc", "x"), ["c"]).values()) == {"c"}
    assert set(writers(["a", "b"], dict.fromkeys("ab", "x"), ["elsewhere"]).values()) == {"a"}


def test_hosts_without_a_mark_share_nothing() -> None:
    assert writers(["a", "b"], {}, []) == {"a": "a", "b": "b"}
