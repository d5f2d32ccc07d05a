"""The clock that differs from most others is the wrong one."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.verify.reach.clocks import Pair, judge


def probes(clocks: dict[str, float], uncertainty: float = 0.0001) -> dict[Pair, dict[str, Any]]:
    return {
        (one, other): {
            "clock_offset_seconds": clocks[other] - clocks[one],
            "clock_uncertainty_seconds": uncertainty,
        }
        for one, other in permutations(clocks, 2)
    }


def test_clocks_that_agree_are_right() -> None:
    found = judge(probes({"a": 0.001, "b": 0.0, "c": -0.002}), ("a", "b", "c"))
    assert (found.wrong, found.doubtful, found.majority) == ((), (), True)


@pytest.mark.parametrize("seconds", [-3600.0, -1.5, 1.5, 86400.0])
def test_the_one_that_differs_is_named_wherever_it_stands(seconds: float) -> None:
    for name in "abcd":
        clocks = {**dict.fromkeys("abcd", 0.0), name: seconds}
        found = judge(probes(clocks), tuple("abcd"))
        assert (found.wrong, found.majority) == ((name,), True)
        assert found.offsets[name].seconds == pytest.approx(seconds)


def test_a_tenth_of_a_second_is_doubtful_only() -> None:
    found = judge(probes({"a": 0.0, "b": 0.3, "c": 0.0}), ("a", "b", "c"))
    assert (found.wrong, found.doubtful) == ((), ("b",))


def test_what_is_not_known_exactly_enough_is_not_held_against_a_host() -> None:
    found = judge(probes({"a": 0.0, "b": 1.2, "c": 0.0}, uncertainty=0.4), ("a", "b", "c"))
    assert (found.wrong, found.doubtful) == ((), ("b",))


def test_two_hosts_have_no_majority() -> None:
    found = judge(probes({"a": 0.0, "b": 5.0}), ("a", "b"))
    assert found.wrong and not found.majority


def test_a_host_that_only_one_peer_reaches_is_compared_over_that_peer() -> None:
    seen = probes({"a": 0.0, "b": 0.0, "c": 7.0})
    for pair in (("a", "c"), ("c", "a")):
        del seen[pair]
    found = judge(seen, ("a", "b", "c"))
    assert found.wrong == ("c",)
    assert found.offsets["c"].uncertainty <= 0.0002


def test_a_host_that_nobody_speaks_to_is_unknown_and_not_right() -> None:
    found = judge(probes({"a": 0.0, "b": 0.0}), ("a", "b", "c"))
    assert found.unknown == ("c",)
    assert judge({}, ("a", "b")).unknown == ("a", "b")


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=8), st.floats(-1e6, 1e6))
def test_only_differences_count(offsets: list[float], shift: float) -> None:
    hosts = tuple(f"n{number}" for number in range(len(offsets)))
    here = judge(probes(dict(zip(hosts, offsets, strict=True))), hosts)
    there = judge(probes({h: o + shift for h, o in zip(hosts, offsets, strict=True)}), hosts)
    for name in hosts:
        assert here.offsets[name].seconds == pytest.approx(there.offsets[name].seconds, abs=1e-6)
