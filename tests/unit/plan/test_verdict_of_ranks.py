"""What the waits for servers found, engine by engine."""

from __future__ import annotations

from typing import Any

from vllm_ansible.plan.verdicts import gathered, ranks_asked

PLANNED = {"name": "a", "layout": {"tensor": 1, "pipeline": 1, "data": 2}}


def wait(number: int, ready: bool = True, **more: Any) -> dict[str, Any]:
    item = {"name": f"a-serve-{number}", "engine": "a", "rank": number, "of": 2, "host": "n1"}
    said = {"endpoint": f"http://10.0.0.1:{20020 + number}/v1", "answer": f"from {number}"}
    return {"ready": ready, "item": item, **(said if ready else {"found": "dead"}), **more}


def test_an_engine_is_ready_when_all_its_ranks_have_answered() -> None:
    found = gathered([wait(1), wait(0)])
    verdict = found["ready"]["a"]
    assert (verdict["endpoint"], verdict["answer"]) == ("http://10.0.0.1:20020/v1", "from 0")
    assert [(one["rank"], one["answer"]) for one in verdict["ranks"]] == [
        (0, "from 0"),
        (1, "from 1"),
    ]
    assert ranks_asked(PLANNED, verdict) == []
    assert not found["unready"]
    assert not found["silent"]


def test_one_rank_without_an_answer_is_an_engine_without_one() -> None:
    found = gathered([wait(0), wait(1, ready=False)])
    assert not found["ready"]
    assert found["unready"]["a"]["found"] == "dead"


def test_a_rank_that_ended_tells_more_than_one_that_waits_for_it() -> None:
    found = gathered([wait(0, ready=False, silent=True, found="quiet"), wait(1, ready=False)])
    assert found["unready"]["a"]["found"] == "dead; no answer from a-serve-0 either"
    assert found["unready"]["a"]["item"]["name"] == "a-serve-1"
    assert found["silent"] == ["a"]


def test_a_rank_that_nobody_asked_is_named() -> None:
    assert ranks_asked(PLANNED, gathered([wait(0)])["ready"]["a"]) == ["a rank 1"]
    assert ranks_asked(PLANNED, {"answer": "x"}) == ["a rank 0", "a rank 1"]
    assert ranks_asked({"name": "a"}, {"answer": "x"}) == []


def test_the_start_of_an_engine_is_that_of_the_rank_that_took_longest() -> None:
    short, long = {"starting": 5.0, "first answer": 1.0}, {"starting": 4.0, "loading": 9.0}
    ready = gathered([wait(0, start=short), wait(1, start=long)])["ready"]["a"]
    assert ready["start"] == long
    assert "start" not in gathered([wait(0), wait(1)])["ready"]["a"]
