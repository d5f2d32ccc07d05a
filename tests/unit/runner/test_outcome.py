from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.runner import (
    AnyEvent,
    Endpoint,
    Evidence,
    Failure,
    Outcome,
    RunEnded,
    RunFailure,
    StageEnded,
    StageStarted,
    TaskResult,
)
from vllm_ansible.runner.outcome import Collector, conclude

TASK = TaskResult(stage="serve", task="t", host="gh-01", status="ok", seconds=1)
WELL = RunEnded(ok=True, changed=2, failures=0, seconds=1)
BADLY = RunEnded(ok=False, changed=0, failures=1, seconds=1)


def failed(host: str, **more: str) -> Failure:
    return Failure(stage="serve", host=host, task="t", message=f"{host} died", **more)


def over(*events: AnyEvent, **changes: Any) -> Outcome:
    collector = Collector()
    for event in events:
        collector.add(event)
    values: dict[str, Any] = {
        "run_dir": Path("runs/1"),
        "exit_code": 0,
        "cancelled": False,
        "output": "",
        "command": "ansible-playbook site.yml -i inventories/two",
    }
    return conclude(collector, **(values | changes))


def test_a_run_that_ended_well_carries_its_evidence_and_each_endpoint_once() -> None:
    one = {"name": "dsr1", "endpoint": "http://a/v1", "model": "r1", "api_key_file": "/k"}
    two = {"name": "small", "endpoint": "http://b/v1"}
    evidence = [
        Evidence(stage="serve", host=host, gate=gate, summary="s", values={"engines": engines})
        for host, gate, engines in (
            ("gh-01", "serve", [one]),
            ("gh-02", "serve", [one, two]),
            ("gh-02", "benchmark", [{"endpoint": "http://c/v1"}]),
        )
    ]
    outcome = over(TASK, *evidence, WELL)
    assert outcome.ok
    assert outcome.changed == 2
    assert outcome.endpoints == [
        Endpoint("http://a/v1", "r1", "/k"),
        Endpoint("http://b/v1", "small", None),
    ]
    assert outcome.evidence == evidence


def test_the_last_word_on_an_engine_holds_when_a_router_stands_before_its_ranks() -> None:
    words = [{"name": "r1", "endpoint": f"http://{where}/v1"} for where in ("rank", "router")]
    evidence = [
        Evidence(stage="serve", host="h", gate="serve", summary="s", values={"engines": [one]})
        for one in words
    ]
    assert over(TASK, *evidence, WELL).endpoints == [Endpoint("http://router/v1", "r1", None)]


def test_the_failure_that_knows_its_cause_speaks_for_the_others() -> None:
    with pytest.raises(RunFailure) as raised:
        over(TASK, failed("gh-01"), failed("gh-02", cause="disk full"), BADLY, exit_code=2)
    assert (raised.value.host, raised.value.cause) == ("gh-02", "disk full")
    assert len(raised.value.failures) == 2


def test_what_failed_in_a_stage_that_went_well_explains_nothing() -> None:
    rescued = Failure(stage="weights", host="gh-01", task="t", message="a try")
    ended = StageEnded(stage="weights", seconds=1, ok=True)
    with pytest.raises(RunFailure) as raised:
        over(TASK, rescued, ended, failed("gh-02"), BADLY, exit_code=2)
    assert raised.value.message == "gh-02 died"


def test_a_run_without_a_task_is_no_success() -> None:
    with pytest.raises(RunFailure, match="nothing was run") as raised:
        over(WELL)
    assert raised.value.expected
    assert raised.value.fix


def test_a_run_that_never_began_shows_what_ansible_said() -> None:
    with pytest.raises(RunFailure, match="before its first play") as raised:
        over(run_dir=None, exit_code=4, output="[ERROR]: no such inventory")
    assert raised.value.found == "[ERROR]: no such inventory"
    assert raised.value.command == "ansible-playbook site.yml -i inventories/two"


def test_a_cancelled_run_says_where_it_stood() -> None:
    with pytest.raises(RunFailure) as raised:
        over(StageStarted(stage="weights"), TASK, BADLY, exit_code=99, cancelled=True)
    assert raised.value.cancelled
    assert raised.value.stage == "weights"


def test_a_good_record_does_not_hide_a_bad_exit_status() -> None:
    with pytest.raises(RunFailure, match="exit status 250"):
        over(TASK, WELL, exit_code=250)
