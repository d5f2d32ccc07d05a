"""What the watchdog of a host is told, and which of its findings `status` counts."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.process.process import STOPPED
from vllm_ansible.plan.watched import current, measurements, rows, told

HOSTS = [{"name": name, "address": f"10.0.0.{n}"} for n, name in enumerate(("n1", "n2"), 1)]
ENGINE: dict[str, Any] = {
    **{"name": "r1", "served_name": "m", "hosts": ["n1", "n2"]},
    "ports": {"api": 8000, "worker_first": 9000},
    "ranks": [{"rank": 0, "host": "n1", "device": 0}, {"rank": 1, "host": "n2", "device": 0}],
}
FINDING = {
    **{
        "key": "k",
        "kind": "stopped",
        "engine": "r1",
        "process": "r1-ray",
        "found": "it is stopped",
    },
    **{"fix": "f", "stage": "serving", "since": 1.0, "for_seconds": 12.0},
}
LOOKED = {"state": {"findings": [FINDING]}, "age": 1.0, "error": ""}
RUNS = {"watchdog": {"running": True, "pid": 5, "log": "w.log"}, "r1-ray": {"why": ""}}


def test_the_first_host_asks_and_each_host_looks_at_the_others() -> None:
    (first,) = told([ENGINE], HOSTS, "n1")
    (second,) = told([ENGINE], HOSTS, "n2")
    assert first["server"]["local"] and not second["server"]["local"]
    assert first["peers"] == [{"host": "n2", "address": "10.0.0.2", "port": 8000}]
    assert (first["ranks"], second["ranks"]) == ([0], [1])
    assert told([ENGINE], HOSTS, "n3") == []


def test_data_ranks_are_asked_by_their_router_alone() -> None:
    (one,) = told([{**ENGINE, "layout": {"data": 2, "tensor": 1}}], HOSTS, "n1")
    assert one["server"] is None


def test_a_host_that_this_run_leaves_out_is_not_watched() -> None:
    (one,) = told([ENGINE], HOSTS[1:], "n2")
    assert one["server"] is None and one["peers"] == []


def test_a_finding_fails_status_and_is_shown() -> None:
    assert rows(LOOKED, RUNS) == ["watchdog: it is stopped, while serving, for 12 s"]
    (one,) = measurements(LOOKED, RUNS, "n1")
    assert not one["ok"] and one["where"] == "n1" and one["fix"] == "f"


@pytest.mark.parametrize(
    "processes",
    [
        {**RUNS, "r1-serve": {"why": STOPPED}},
        {**RUNS, "r1-ray": {"why": STOPPED}},
        {"watchdog": {"running": False}},
        {},
    ],
)
def test_what_somebody_has_stopped_or_nobody_watches_is_no_finding(
    processes: dict[str, Any],
) -> None:
    assert current(LOOKED, processes) == [] and measurements(LOOKED, processes, "n1") == []


@pytest.mark.parametrize(("age", "error"), [(90.0, ""), (0.0, "permission denied")])
def test_a_watchdog_that_looks_no_more_is_told(age: float, error: str) -> None:
    (one,) = measurements({"state": {}, "age": age, "error": error}, RUNS, "n1")
    assert one["what"] == "a watchdog that looks"
    assert one["found"] == (error or "its last look was 90 s ago")
