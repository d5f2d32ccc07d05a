import json

import pytest

from vllm_ansible.runner import (
    Evidence,
    Failure,
    Progress,
    RunEnded,
    RunStarted,
    StageEnded,
    StageStarted,
    TaskResult,
    Warned,
)
from vllm_ansible.runner.events import parse


@pytest.mark.parametrize(
    ("record", "event"),
    [
        (
            {"event": "run_start", "run": "r", "inventory": "i", "command": "c", "check": True},
            RunStarted(run="r", inventory="i", command="c", check=True),
        ),
        ({"event": "stage_start", "stage": "plan"}, StageStarted(stage="plan")),
        (
            {"event": "stage_end", "stage": "plan", "seconds": 1.5, "ok": True},
            StageEnded(stage="plan", seconds=1.5, ok=True),
        ),
        (
            {"event": "task", "stage": "s", "task": "t", "host": "h", "status": "ok", "seconds": 1},
            TaskResult(stage="s", task="t", host="h", status="ok", seconds=1),
        ),
        (
            {"event": "evidence", "stage": "s", "host": "h", "gate": "g", "summary": "fine"},
            Evidence(stage="s", host="h", gate="g", summary="fine", values={}),
        ),
        (
            {"event": "progress", "stage": "s", "task": "t", "text": "x", "done": 2, "unit": ""},
            Progress(stage="s", task="t", text="x", done=2, total=None, unit=None),
        ),
        (
            {"event": "failure", "stage": "s", "host": "h", "msg": "m", "command": ["a", "b"]},
            Failure(stage="s", host="h", task=None, message="m", command="a b"),
        ),
        ({"event": "warning", "text": "w", "host": None}, Warned(text="w")),
        (
            {"event": "run_end", "ok": False, "changed": 1, "failures": 2, "seconds": 3},
            RunEnded(ok=False, changed=1, failures=2, seconds=3),
        ),
    ],
)
def test_each_kind_of_line_becomes_its_own_type(record: dict[str, object], event: object) -> None:
    assert parse(json.dumps(record)) == event


@pytest.mark.parametrize("line", ["", "{", "[]", "7", '{"event": "of a newer version"}'])
def test_a_line_that_cannot_be_read_is_passed_over(line: str) -> None:
    assert parse(line) is None


def test_a_failure_without_a_message_says_that_there_is_none() -> None:
    event = parse('{"event": "failure", "host": "gh-01"}')
    assert isinstance(event, Failure)
    assert "no message" in event.message
