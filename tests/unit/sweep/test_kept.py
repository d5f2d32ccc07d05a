"""What is kept of a sweep, and how the next run goes on with it."""

from __future__ import annotations

from typing import Any

from vllm_ansible.sweep.kept import before_of, begun, failed, left, measured, with_point
from vllm_ansible.sweep.points import Point

PLAN = {"engines": [{"name": "chat"}], "digest": "d1"}
GRID = (Point(8, 64), Point(8, 256), Point(16, 64))
GOOD = measured({"output_tokens_per_second": 5.0}, {"output_tokens_per_second": [1, 2, 3]})
BAD = failed({"a": {"msg": "no room", "cause": "memory"}}, "now")


def document(*points: tuple[Point, dict[str, Any]]) -> dict[str, Any]:
    made = begun({}, "chat", "m1", PLAN, False)
    for point, found in points:
        made = with_point(made, point, found)
    return made


def test_of_a_task_in_a_loop_the_item_says_why() -> None:
    items = [{"failed": False, "msg": "well"}, {"failed": True, "msg": "no", "found": "8 < 16"}]
    found = failed({"a": {"msg": "One or more items failed", "results": items}}, "now")
    assert found["failure"] == {"msg": "no", "found": "8 < 16", "host": "a"}


def test_a_fresh_sweep_has_all_points_left_and_remembers_the_plan() -> None:
    made = document()
    assert left(made, GRID, False) == list(GRID)
    assert made["before"] == PLAN


def test_points_that_were_measured_or_failed_are_passed_over() -> None:
    made = document((GRID[1], BAD), (GRID[0], GOOD))
    assert left(made, GRID, False) == [GRID[2]]
    assert left(made, GRID, True) == [GRID[1], GRID[2]]
    assert [one["ok"] for one in made["points"]] == [True, False]


def test_a_point_that_was_tried_again_stands_once() -> None:
    made = document((GRID[0], BAD), (GRID[0], GOOD))
    (only,) = made["points"]
    assert only["ok"]


def test_a_sweep_that_was_cut_short_goes_on_and_goes_back_to_the_plan_before_it() -> None:
    cut = document((GRID[0], GOOD))
    now = {"engines": [{"name": "chat", "arguments": ["--max-num-seqs", "8"]}]}
    assert before_of(cut, now) == PLAN
    again = begun(cut, "chat", "m1", now, False)
    assert again["before"] == PLAN
    assert left(again, GRID, False) == list(GRID[1:])


def test_a_sweep_that_came_to_its_end_starts_from_the_present_plan() -> None:
    ended = {**document((GRID[0], GOOD)), "before": {}}
    now = {"engines": [{"name": "chat"}], "digest": "d2"}
    assert before_of(ended, now) == now
    assert begun(ended, "chat", "m1", now, False)["before"] == now


def test_points_of_another_engine_or_load_do_not_hold_and_the_plan_before_does() -> None:
    cut = document((GRID[0], GOOD))
    for changed in (begun(cut, "chat", "m2", {}, False), begun(cut, "chat", "m1", {}, True)):
        assert changed["points"] == []
        assert changed["before"] == PLAN


def test_what_another_release_has_kept_is_not_taken_for_ours() -> None:
    kept = {**document((GRID[0], GOOD)), "version": 0}
    assert begun(kept, "chat", "m1", {"engines": []}, False)["points"] == []
    assert before_of(kept, {"engines": []}) == {"engines": []}


def test_a_failure_is_told_in_the_words_of_the_host_that_failed() -> None:
    found = failed({"a": {}, "b": {"msg": "x" * 5000, "fix": "less", "rc": 1}}, "now")
    assert found["failure"]["host"] == "b"
    assert len(found["failure"]["msg"]) == 600
    assert (found["failure"]["fix"], "rc" in found["failure"]) == ("less", False)
    assert "without a message" in failed({"a": {}}, "now")["failure"]["msg"]
    assert failed({"a": {"rc": 1}}, "now")["failure"]["msg"] == "it failed without a message"


def test_the_prediction_stands_beside_what_was_measured() -> None:
    assert GOOD["predicted"] == [1, 2, 3]
    assert measured({}, {})["predicted"] is None
    lengths = {"input_tokens": 1024, "output_tokens": 512}
    assert measured({}, {**lengths, "kv_tokens": 1})["predicted_for"] == lengths
