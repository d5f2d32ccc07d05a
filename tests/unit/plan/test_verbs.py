from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.verbs import closing_steps, died_engines, status_rows, stop_steps

NOW = 1_000_000.0


def record(engine: str, **more: Any) -> dict[str, Any]:
    return {
        "engine": engine,
        "running": True,
        "pid": 7,
        "started_at": NOW - 5,
        "exit_status": None,
        "why": "",
        **more,
    }


PROCESSES = {
    "b-serve": record("b"),
    "a-serve": record("a"),
    "a-ray": record("a"),
    # An engine may be called what a process of another is called.
    "a-ray-serve": record("a-ray"),
    # What stands before the servers is no engine's.
    "page": record(""),
}
ENGINES = [
    {"name": name, "hosts": ["n1"], "ports": {"api": port}}
    for name, port in (("a", 8000), ("b", 8001))
]


def names(servers: bool) -> list[str]:
    return [step["name"] for step in stop_steps(PROCESSES, servers, forget=False)]


def test_servers_stop_apart_from_what_they_run_on() -> None:
    assert names(servers=True) == ["page", "a-ray-serve", "a-serve", "b-serve"]
    assert names(servers=False) == ["a-ray"]


def test_the_servers_of_engines_are_stopped_and_nothing_beneath_or_beside_them() -> None:
    steps = closing_steps(PROCESSES, ["a"])
    assert steps == [{"name": "a-serve", "engine": "a", "state": "stopped"}]
    assert closing_steps(PROCESSES, []) == []


@pytest.mark.parametrize(("forget", "state"), [(False, "stopped"), (True, "absent")])
def test_a_step_stops_or_forgets(forget: bool, state: str) -> None:
    (step,) = stop_steps(PROCESSES, servers=False, forget=forget)
    assert step == {"name": "a-ray", "engine": "a", "state": state}


def test_a_host_without_processes_has_no_steps_and_no_rows() -> None:
    assert stop_steps({}, True, True) == []
    assert status_rows({}, ENGINES, "10.0.0.1", NOW) == []


def row(name: str, **more: Any) -> str:
    engine = name.rpartition("-")[0]
    (line,) = status_rows({name: record(engine, **more)}, ENGINES, "10.0.0.1", NOW)
    return line


def test_a_server_that_runs_says_where_it_answers() -> None:
    assert row("b-serve") == "b-serve: running for 5 s, process 7, http://10.0.0.1:8001/v1"
    assert row("a-ray") == "a-ray: running for 5 s, process 7"
    assert row("gone-serve") == "gone-serve: running for 5 s, process 7"


@pytest.mark.parametrize(
    ("record_says", "state"),
    [
        ({"exit_status": 1}, "ended with exit status 1"),
        ({"exit_status": 137}, "was killed by signal 9 (SIGKILL)"),
        ({"exit_status": 255}, "ended with exit status 255"),
        ({"exit_status": 0}, "ended with exit status 0, and no command stopped it"),
        ({"exit_status": 0, "why": "it was stopped"}, "stopped"),
        ({"why": "it was killed"}, "not running: it was killed"),
        ({}, "not running"),
    ],
)
def test_what_does_not_run_says_why_and_no_address(record_says: dict[str, Any], state: str) -> None:
    assert row("a-serve", running=False, pid=None, **record_says) == f"a-serve: {state}"


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 m 0 s"),
        (3599, "59 m 59 s"),
        (3600, "1 h 0 m"),
        (86399, "23 h 59 m"),
        (90000, "1 d 1 h"),
    ],
)
def test_an_age_is_told_in_its_two_largest_units(seconds: float, age: str) -> None:
    assert row("a-ray", started_at=NOW - seconds) == f"a-ray: running for {age}, process 7"


def gone(engine: str, why: str, **more: Any) -> dict[str, Any]:
    return record(engine, running=False, pid=None, why=why, **more)


def test_what_died_is_told_by_engine_and_what_ended_first_comes_first() -> None:
    looks = {
        "n1": {
            "a-serve": gone("a", "it ended with exit status 0", exit_status=0, ended_at=NOW + 4),
            "b-serve": record("b"),
            "c-serve": gone("c", "it was stopped", exit_status=0),
            "load-page": gone("", "it was killed"),
        },
        "n2": {"a-ray": gone("a", "it was killed by signal 9 (SIGKILL)", ended_at=NOW)},
    }
    found = died_engines(looks, ENGINES)
    assert list(found) == ["a", "load-page"]
    assert found["a"]["found"] == (
        "on n2: a-ray was killed by signal 9 (SIGKILL); on n1: a-serve ended with exit status 0"
    )
    assert found["a"]["where"] == "n2"
    assert all(found["a"][name] for name in ("expected", "fix"))


def test_a_host_that_does_not_answer_is_named_before_what_followed_from_it() -> None:
    looks = {"n1": {"a-serve": gone("a", "it ended with exit status 0", exit_status=0)}}
    engines = [{"name": "a", "hosts": ["n1", "n2"], "ports": {"api": 8000}}]
    (verdict,) = died_engines(looks, engines, lost=["n2", "n3"]).values()
    assert verdict["found"].startswith("no answer from n2; on n1: a-serve ended")
    assert verdict["where"] == "n2"
    assert died_engines({"n1": PROCESSES}, engines, lost=["n2"]) == {}
