"""Nothing is built twice, and nothing that exists; every host ends with what it needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.wheels.shares import Share, shares

TWO = {"h1": ["k"], "h2": ["k"]}


def test_one_builds_and_hands_over_and_the_others_take() -> None:
    found = shares(TWO, {}, [])
    assert found == {"h1": Share(["k"], ["k"]), "h2": Share(takes=["k"])}


def test_who_has_it_hands_it_over_and_nobody_builds() -> None:
    found = shares(TWO, {"h2": ["k"]}, [])
    assert found == {"h1": Share(takes=["k"]), "h2": Share(gives=["k"])}


def test_what_the_controller_keeps_is_taken() -> None:
    assert shares(TWO, {"h1": ["k"]}, ["k"]) == {"h1": Share(), "h2": Share(takes=["k"])}


def test_each_kind_of_host_builds_its_own_and_several_wheels_are_built_at_once() -> None:
    wanted = {"a1": ["ka", "la"], "a2": ["ka", "la"], "b1": ["kb", "lb"]}
    builds = {host: share.builds for host, share in shares(wanted, {}, []).items()}
    assert builds == {"a1": ["ka"], "a2": ["la"], "b1": ["kb", "lb"]}


KEYS = st.lists(st.sampled_from("abc"), unique=True)
HOSTS = st.dictionaries(st.sampled_from(["h1", "h2", "h3"]), KEYS)


@given(HOSTS, HOSTS, KEYS)
def test_whatever_exists_every_host_is_served(
    wanted: dict[str, list[str]], present: dict[str, list[str]], cached: list[str]
) -> None:
    found = shares(wanted, present, cached)
    builds = [key for share in found.values() for key in share.builds]
    assert len(builds) == len(set(builds))
    kept = {*cached, *(key for share in found.values() for key in share.gives)}
    for host, keys in wanted.items():
        share, has = found[host], set(present.get(host, ()))
        assert {*share.builds, *share.takes, *has} >= set(keys)
        assert not has & {*share.builds, *share.takes}
        assert set(share.takes) <= kept
        assert set(keys) <= kept
