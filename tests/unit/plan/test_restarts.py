"""Which engines a cluster's head starts again, and what `status` says of it."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.process.process import STOPPED
from vllm_ansible.plan.restarts import measurements, rows, wanted
from vllm_ansible.record.diagnosis.points import points

HOSTS = [{"name": name, "address": f"10.0.0.{n}"} for n, name in enumerate(("n1", "n2"), 1)]
ENGINE: dict[str, Any] = {
    **{"name": "r1", "served_name": "m", "hosts": ["n1", "n2"], "executor": "ray"},
    "ports": {"api": 8000, "worker_first": 9000, "dashboard": 9100},
    "ranks": [{"rank": 0, "host": "n1", "device": 0}, {"rank": 1, "host": "n2", "device": 0}],
}
HERE = {**ENGINE, "hosts": ["n1"], "ranks": [{"rank": 0, "host": "n1", "device": 0}] * 2}


def one(engine: dict[str, Any], host: str = "n1", provider: str = "") -> dict[str, Any]:
    (found,) = wanted([engine], HOSTS, host, provider)
    return found


def test_over_hosts_the_server_is_started_again_where_ray_counts_all_nodes() -> None:
    found = one(ENGINE)
    assert (found["why"], found["processes"]) == ("", ["r1-serve"])
    assert found["nodes"]["n2"] == {"address": "10.0.0.2", "devices": 1}
    assert found["servers"][0]["address"] == "10.0.0.1" and found["dashboard_port"] == 9100


def test_on_one_host_ray_is_started_again_too_and_first() -> None:
    found = one(HERE)
    assert found["processes"] == ["r1-ray", "r1-serve"] and found["nodes"] == {}
    assert one({**HERE, "executor": "mp"})["processes"] == ["r1-serve"]


def test_data_ranks_of_one_host_are_started_together() -> None:
    found = one({**HERE, "executor": "dp", "layout": {"data": 2, "tensor": 1}})
    assert found["processes"] == ["r1-serve-0", "r1-serve-1"]
    assert [server["port"] for server in found["servers"]] == [9000, 9001]


@pytest.mark.parametrize(
    ("engine", "host", "provider", "why"),
    [
        (ENGINE, "n1", "slurm", "Slurm"),
        (ENGINE, "n2", "", "served from n1"),
        ({**ENGINE, "executor": "mp"}, "n1", "", "its ranks on n2 are processes that only"),
        ({**HERE, "front": "dynamo"}, "n1", "", "Dynamo"),
        ({**ENGINE, "hosts": ["n1", "n3"]}, "n1", "", "left out n3"),
    ],
)
def test_what_the_head_cannot_start_says_why(
    engine: dict[str, Any], host: str, provider: str, why: str
) -> None:
    found = one(engine, host, provider)
    assert why in found["why"] and found["servers"] == []


RUNS = {"watchdog-restarts": {"running": True, "engine": ""}, "r1-serve": {"engine": "r1"}}
ENTRY = {
    **{"at": 0.0, "ended_at": 42.0, "kind": "hung", "found": "r1 computes nothing"},
    **{"outcome": "it answers again", "helped": True, "logs": "/l"},
}
KEPT = {"held": "", "restarts": [ENTRY], "counts": {"hung": [3, 2]}}


def looked(**kept: Any) -> dict[str, Any]:
    return {"state": {"engines": {"r1": {**KEPT, **kept}}}}


def test_status_says_how_often_it_helped_and_fails_only_where_nothing_comes_back() -> None:
    (row,) = rows(looked(), RUNS)
    assert row == (
        "restarts: r1: helped: hung 2 of 3; last at 1970-01-01 00:00:00 UTC, since r1 computes "
        "nothing, it answers again after 42 s; its logs are in /l"
    )
    assert measurements(looked(), RUNS, "n1") == []
    held = looked(held="it would be started again: x", command="sudo python r.py s.json r1")
    assert "(sudo python r.py s.json r1)" in rows(held, RUNS)[0]
    (failed,) = measurements(held, RUNS, "n1")
    assert failed["fix"] == "on n1: sudo python r.py s.json r1" and not failed["ok"]


def test_restarts_change_something_only_where_they_may_and_can() -> None:
    names = [one["name"] for one in wanted([HERE], HOSTS, "n1", "", points())[0]["rungs"]]
    assert names[-1] == "eager" and wanted([HERE], HOSTS, "n1", "")[0]["rungs"] == []
    assert wanted([HERE], HOSTS, "n1", "slurm", points())[0]["rungs"] == []


@pytest.mark.parametrize("processes", [{}, {**RUNS, "r1-serve": {"engine": "r1", "why": STOPPED}}])
def test_what_was_stopped_or_is_not_restarted_by_anybody_is_not_said(
    processes: dict[str, Any],
) -> None:
    assert rows(looked(held="x"), processes) == []
