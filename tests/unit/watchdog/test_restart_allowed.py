"""When an engine is started again, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.watchdog import restart_allowed
from vllm_ansible.node.watchdog.processes import TRACED

NOW = 1000.0
HUNG: dict[str, Any] = {
    **{"kind": "hung", "engine": "r1", "process": "r1-serve", "found": "r1 computes nothing"},
    **{"named_at": 980.0, "stacks": "s", "taken_at": 990.0},
}
STOPPED = {**HUNG, "kind": "stopped", "found": "rank 1 is stopped"}


def cause(
    *findings: dict[str, Any], since: float = 0.0, at: float = NOW, down: tuple[str, ...] = ()
) -> Any:
    return restart_allowed.cause({"at": at, "findings": list(findings)}, "r1", down, since, NOW)


@pytest.mark.parametrize("first", ["memory", "clock", "full", "slow", "stopped"])
def test_what_came_first_is_the_cause_and_what_the_engine_does_not_come_back_from_the_kind(
    first: str,
) -> None:
    """By its kind the ladder is climbed: an engine that hangs hangs, whatever came before."""
    found = cause({**STOPPED, "kind": first}, HUNG)
    assert (found["found"], found["first"], found["kind"]) == ("rank 1 is stopped", first, "hung")
    # What acts is what happened since the last restart.
    before = {**HUNG, "kind": "refuses", "named_at": 980.0}
    assert cause(before, {**HUNG, "named_at": 990.0}, since=985.0)["kind"] == "hung"
    assert cause(HUNG)["kind"] == "hung"


@pytest.mark.parametrize("kind", ["slow", "unreachable", "full", "memory", "clock"])
def test_what_comes_and_goes_on_a_host_postpones_no_restart(kind: str) -> None:
    just = {**STOPPED, "kind": kind, "named_at": 999.0, "taken_at": None}
    assert cause(just, HUNG)["kind"] == "hung"
    assert cause({**just, "kind": "lost"}, HUNG) is None


@pytest.mark.parametrize(
    "kind", ["stopped", "waiting", "lost", "unreachable", "slow", "full", "memory", "clock"]
)
def test_an_engine_that_works_without_what_is_wrong_is_left_alone(kind: str) -> None:
    assert cause({**HUNG, "kind": kind}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "r2"},
        # It runs again.
        {"kind": "ended"},
        # The stacks are still being taken.
        {"taken_at": None},
        # It was only just named: others may follow.
        {"named_at": 999.0},
        {"kind": "refuses", "found": "r1 fails: HTTP 503: it takes no more requests"},
        {"found": f"r1 computes nothing, it is {TRACED}"},
    ],
)
def test_what_is_no_reason_to_start_an_engine_again(change: dict[str, Any]) -> None:
    assert cause({**HUNG, **change}) is None


def test_what_ended_is_started_also_where_a_restart_did_not_help() -> None:
    ended = {**HUNG, "kind": "ended"}
    assert cause(ended, down=("r1-serve",), since=NOW)
    assert cause(ended, down=("r1-ray",)) is None


def test_stacks_that_never_come_are_not_waited_for_without_end() -> None:
    assert cause({**HUNG, "taken_at": None, "named_at": 900.0})


def test_a_watchdog_that_looks_no_more_and_what_was_before_the_last_restart_count_for_nothing() -> (
    None
):
    assert cause(HUNG, at=900.0) is None
    assert restart_allowed.silent({"at": 900.0}, NOW).startswith("the watchdog's state is more tha")
    assert restart_allowed.silent({"at": 990.0}, NOW) == ""
    assert restart_allowed.silent({}, NOW) == ""
    assert cause(HUNG, since=985.0) is None
    assert cause(HUNG, since=970.0)


def test_a_clock_that_was_set_back_keeps_nothing_from_a_restart_for_long() -> None:
    assert cause({**HUNG, "named_at": NOW + 3600})
    assert restart_allowed.too_often([NOW + 3600], 1, 600, NOW) == ""
    assert restart_allowed.too_often([NOW + 60], 1, 600, NOW)


def test_no_more_restarts_than_are_allowed_within_a_time() -> None:
    assert restart_allowed.too_often([900.0, 950.0], 3, 3600, NOW) == ""
    said = restart_allowed.too_often([900.0, 950.0, 960.0], 3, 3600, NOW)
    assert said == "3 restarts were made within 3600 s, 3 are allowed"
    assert restart_allowed.too_often([900.0, 950.0, 960.0], 3, 99, NOW) == ""
    assert restart_allowed.too_often([], 0, 3600, NOW)


def test_no_start_is_tried_on_a_full_file_system() -> None:
    full = {**HUNG, "kind": "full", "found": "the file system of /opt/c on h1 is full"}
    # What is wrong with the host is the cause of what follows from it.
    assert cause(full, HUNG)["first"] == "full"
    hindered = restart_allowed.hindered
    # A restart itself frees these: it removes what the engine has left there.
    for path in ("/dev/shm", "/tmp"):  # noqa: S108
        scratch = {**full, "key": f"full r1 {path}"}
        assert hindered({"findings": [scratch]}, "r1") == ""
        assert hindered({"findings": [scratch, {**full, "key": "full r1 /opt/c"}]}, "r1")
    assert hindered({"findings": [HUNG, full]}, "r1") == "the file system of /opt/c on h1 is full"
    assert hindered({"findings": [HUNG, full]}, "r2") == ""
    assert hindered({}, "r1") == ""


def test_a_machine_that_ends_is_no_place_to_start() -> None:
    notice = {"host": "h1", "cause": "spot interruption", "at": 1100.0}
    assert restart_allowed.ending({}, "r1", 0.0, 600, NOW) == ""
    assert "provider ends h1" in restart_allowed.ending({"own": notice}, "r1", 0.0, 600, NOW)
    of_engine = {"engines": {"r1": notice}}
    assert "provider ends h1" in restart_allowed.ending(of_engine, "r1", 0.0, 600, NOW)
    assert restart_allowed.ending({"engines": {"r2": notice}}, "r1", 1601.0, 600, NOW) == ""
    assert "ends within the 600 s" in restart_allowed.ending({}, "r1", 1600.0, 600, NOW)
