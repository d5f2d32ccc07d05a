"""What is built from source is pinned, and a key is equal exactly where the wheel is."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.wheels.builds import parse_builds, wanted_wheels

COMMIT = "0123456789abcdef" * 2 + "01234567"
ONE: dict[str, Any] = {"name": "vLLM", "source": "https://example.com/vllm", "revision": COMMIT}
HOST = {
    "accelerator": "nvidia",
    "architecture": "aarch64",
    "cuda_toolkit": "13.0",
    "accelerator_name": "A",
}


def key(entry: dict[str, Any], host: dict[str, Any] = HOST, python: str = "3.11") -> str:
    (wheel,) = wanted_wheels(parse_builds([entry]), host, python)
    found: str = wheel["key"]
    return found


def test_everything_that_makes_another_wheel_makes_another_key() -> None:
    keys = [
        key(ONE),
        key({**ONE, "revision": COMMIT[::-1]}),
        key({**ONE, "name": "triton"}),
        key({**ONE, "directory": "python"}),
        key({**ONE, "settings": {"a": "b"}}),
        key({**ONE, "environment": {"a": "b"}}),
        key(ONE, python="3.12"),
        key(ONE, {**HOST, "cuda_toolkit": "12.8"}),
        key(ONE, {**HOST, "architecture": "x86_64"}),
        key(ONE, {**HOST, "accelerator_name": "B"}),
        key(ONE, {**HOST, "distribution": "ubuntu", "distribution_version": "22.04"}),
        key(ONE, {**HOST, "distribution": "ubuntu", "distribution_version": "24.04"}),
    ]
    assert len(set(keys)) == len(keys)


def test_the_address_and_the_spelling_of_the_name_make_none() -> None:
    assert key({**ONE, "source": "/srv/git/vllm", "name": "vllm"}) == key(ONE)


def test_a_toolkit_without_an_accelerator_of_its_kind_makes_none() -> None:
    assert key(ONE, {**HOST, "accelerator": "cpu"}) == key(
        ONE, {"accelerator": "cpu", "architecture": "aarch64"}
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"revision": "v0.7.2"}, "revision is not a whole commit, 40 digits"),
        ({"revision": None}, "revision is not a whole commit"),
        ({"source": "vllm"}, "source is not an address of a git repository"),
        ({"source": "--upload-pack=x"}, "source is not an address"),
        ({"source": "https://me:word@example.com/x"}, "source holds a secret"),
        ({"source": "https://token@example.com/x"}, "source holds a secret"),
        ({"directory": "../x"}, "directory"),
        ({"directory": "/x"}, "directory"),
        ({"name": "-x"}, "name is not the name of a distribution"),
        ({"environment": {"A B": "x"}}, "environment"),
        ({"settings": ["x"]}, "settings is not a mapping"),
        ({"revison": "x"}, "has no revison"),
    ],
)
def test_what_is_not_pinned_or_not_understood_is_refused(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanError, match=said) as error:
        parse_builds([{**ONE, **changed}])
    assert all(problem.expected and problem.fix for problem in error.value.problems)
    assert "word" not in str(error.value) and "token@" not in str(error.value)


def test_a_tag_is_told_how_it_becomes_a_commit() -> None:
    with pytest.raises(PlanError) as error:
        parse_builds([{**ONE, "revision": "v0.7.2"}])
    assert error.value.problems[0].fix == "git ls-remote https://example.com/vllm v0.7.2"


def test_addresses_of_all_kinds_are_taken() -> None:
    for source in (
        *("git@example.com:a/b.git", "ssh://git@example.com/a", "file:///a", "/a", "~/a"),
        "https://example.com:8443/a.git",
    ):
        parse_builds([{**ONE, "source": source}])


def test_one_name_is_built_once_and_a_list_is_a_list() -> None:
    for wanted, said in (
        ([ONE, ONE], "names vllm twice"),
        ({}, "not a list"),
        ([3], "not a mapping"),
    ):
        with pytest.raises(PlanError, match=said):
            parse_builds(wanted)
