from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.sweep.points import (
    Load,
    Point,
    check_measured,
    engines_at,
    fingerprint,
    points,
)

LOAD = Load(rounds=4, least_requests=16, input_tokens=64, output_tokens=32)
PLANNED: dict[str, Any] = {
    "name": "chat",
    "layout": {"tensor": 8, "pipeline": 2},
    "arguments": ["--max-model-len", "4096", "--max-num-seqs", "8", "--seed", "1"],
    "reasons": ["because"],
    "estimate": {"kv_tokens": [1, 2, 3]},
    "request": "r1",
}


def test_points_are_all_combinations_in_order() -> None:
    found = points([32, 8], [4096, 1024], [])
    assert [one.name for one in found] == ["8 x 1024", "8 x 4096", "32 x 1024", "32 x 4096"]


def test_points_may_be_given_one_by_one_and_stand_once() -> None:
    pairs = [
        {"max_num_seqs": 32, "max_num_batched_tokens": 16384},
        {"max_num_seqs": 8, "max_num_batched_tokens": 8192},
        {"max_num_seqs": 32, "max_num_batched_tokens": 16384},
    ]
    assert [one.name for one in points([], [], pairs)] == ["8 x 8192", "32 x 16384"]


@pytest.mark.parametrize(
    ("sequences", "tokens", "pairs", "words"),
    [
        ([], [], [], "there is no point"),
        ([8], [], [], "there is no point"),
        ([0], [1], [], "whole numbers"),
        (["8"], [1], [], "whole numbers"),
        ([True], [1], [], "whole numbers"),
        ([8], [1], [{"max_num_seqs": 1, "max_num_batched_tokens": 1}], "points and lists"),
        ([], [], [{"max_num_seqs": 1}], "a point has two numbers"),
    ],
)
def test_what_makes_no_points_is_refused(
    sequences: list[Any], tokens: list[Any], pairs: list[Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        points(sequences, tokens, pairs)
    (problem,) = caught.value.problems
    assert problem.expected
    assert problem.found
    assert problem.where


def test_the_load_grows_with_the_sequences() -> None:
    assert LOAD.settings(Point(2, 64)) == {
        "requests": 16, "concurrency": 2, "input_tokens": 64, "output_tokens": 32,
    }  # fmt: skip
    assert LOAD.settings(Point(112, 64))["requests"] == 448


def test_one_engine_changes_and_keeps_what_the_planner_chose() -> None:
    engines = [
        {"name": "code", "model": "m"},
        {
            "name": "chat",
            "model": "m",
            "layout": "auto",
            "vllm_args": {"max-num-seqs": 8, "seed": 1},
        },
    ]
    other, chat = engines_at(engines, PLANNED, Point(32, 2048))
    assert other == engines[0]
    assert chat["layout"] == {"tensor": 8, "pipeline": 2}
    assert chat["vllm_args"] == {
        "max_model_len": 4096, "seed": 1, "max_num_seqs": 32, "max_num_batched_tokens": 2048,
    }  # fmt: skip
    assert engines[1]["layout"] == "auto"


def test_the_fingerprint_holds_over_the_axes_and_over_nothing_else() -> None:
    wanted = {"name": "chat", "vllm_args": {"max-num-seqs": 8, "seed": 1}}
    mark = fingerprint(PLANNED, LOAD, "e1", wanted)
    words = ["--max-model-len", "4096", "--max-num-batched-tokens", "9", "--max-num-seqs", "7"]
    same = {**PLANNED, "arguments": [*words, "--seed", "1"], "request": "r2", "reasons": []}
    asked = {**wanted, "vllm_args": {"max_num_batched_tokens": 9, "seed": 1}}
    assert fingerprint({**same, "estimate": {}}, LOAD, "e1", asked) == mark
    others = [
        fingerprint({**PLANNED, "arguments": PLANNED["arguments"][:-2]}, LOAD, "e1", wanted),
        fingerprint({**PLANNED, "layout": {"tensor": 16, "pipeline": 1}}, LOAD, "e1", wanted),
        fingerprint(PLANNED, Load(4, 16, 64, 33), "e1", wanted),
        fingerprint(PLANNED, LOAD, "e2", wanted),
        # The sweep was cut short, and the inventory was edited before it went on.
        fingerprint(PLANNED, LOAD, "e1", {**wanted, "vllm_args": {"seed": 1, "enforce_eager": 1}}),
    ]
    assert len({mark, *others}) == 6


def test_figures_of_another_engine_or_load_are_not_those_of_a_point() -> None:
    point = Point(8, 64)
    load = LOAD.settings(point)
    figures = {**load, "output_tokens_per_second": 5.0}
    engine = {"name": "chat", "arguments": ["--max-num-seqs", "8", "--max-num-batched-tokens=64"]}
    check_measured(engine, figures, point, load)
    with pytest.raises(PlanError, match="is not the point 8 x 64") as caught:
        check_measured({**engine, "arguments": ["--max-num-seqs", "16"]}, figures, point, load)
    (problem,) = caught.value.problems
    assert problem.found == "max_num_seqs 16, max_num_batched_tokens None"
    with pytest.raises(PlanError, match="is not the point 8 x 64"):
        check_measured(engine, {**figures, "input_tokens": 9}, point, load)
