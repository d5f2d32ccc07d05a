"""Versions that are known to be bad are refused where they would be, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.known_bad import known_bad


def engine(hosts: int, *arguments: str, data: int = 1) -> dict[str, Any]:
    layout = {"tensor": 4, "pipeline": hosts if data == 1 else 1, "data": data}
    names = [f"h{number}" for number in range(hosts)]
    return {"name": "r1", "hosts": names, "arguments": list(arguments), "layout": layout}


@pytest.mark.parametrize(
    ("version", "hosts", "arguments", "count"),
    [
        ("0.32.0", 4, [], 0),
        ("0.32.0+cpu", 4, [], 0),
        ("0.25.1", 4, [], 0),
        ("0.27.2", 4, [], 1),
        ("0.28.1.dev3+gabcdef", 4, [], 1),
        ("0.27.2", 1, [], 0),
        ("0.27.2", 4, ["--disable-custom-all-reduce"], 0),
        ("0.26.1rc1", 4, ["--disable-custom-all-reduce"], 1),
        ("0.26.1rc1", 2, [], 2),
    ],
)
def test_a_version_is_bad_for_some_layouts_and_arguments(
    version: str, hosts: int, arguments: list[str], count: int
) -> None:
    assert len(known_bad(version, [engine(hosts, *arguments)])) == count


def test_data_ranks_do_not_cross_hosts_so_nothing_is_known_of_them() -> None:
    assert known_bad("0.27.2", [engine(4, data=8)]) == []


def test_a_refusal_says_which_engine_and_what_helps() -> None:
    (found,) = known_bad("0.27.2", [engine(1), engine(2)])
    assert "vLLM 0.27.2 can hang without a word at its start over several hosts" in found.message
    assert "engine r1 has 2 (vllm#53894" in found.message
    assert "disable_custom_all_reduce: true" in found.fix


def test_what_is_no_version_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="main"):
        known_bad("main", [engine(2)])


def test_a_play_stops_at_a_bad_version_and_goes_on_where_there_is_none_to_judge(play: Any) -> None:
    def judged(version: str) -> dict[str, Any]:
        arguments = {"version": version, "engines": [engine(2)]}
        return {"name": version, "known_bad_versions": arguments, "ignore_errors": True}

    played = play([judged("0.27.2"), judged("main"), judged("0.32.0")], {"n1": {}})
    assert played["0.27.2"]["failed"] and "engine r1" in played["0.27.2"]["where"]
    assert not played["main"].get("failed") and not played["0.32.0"].get("failed")
