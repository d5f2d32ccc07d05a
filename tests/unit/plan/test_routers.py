"""What a router is told of its ranks, which hosts have one, and where others then look."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from vllm_ansible.benchmark.served import served_on
from vllm_ansible.load_page import offer as load_page
from vllm_ansible.plan import routers
from vllm_ansible.plan.ports import INTERNAL_BASE, cluster_ports, ports_for
from vllm_ansible.plan.verbs import status_rows
from vllm_ansible.problem import PlanError
from vllm_ansible.record.rented import doors
from vllm_ansible.slurm.endpoint import published

ENGINE: dict[str, Any] = {
    "name": "r1",
    "index": 2,
    "served_name": "m",
    "layout": {"data": 2, "tensor": 1, "pipeline": 1},
    "hosts": ["n1", "n2"],
    "ranks": [{"host": "n1", "device": 0}, {"host": "n2", "device": 0}],
    "ports": {"api": 8002, "gcs": 20200, "worker_first": 20220},
    "probe": {"prompt": "p", "expect": "e", "reasoning": False},
}
ALONE = {**ENGINE, "name": "chat", "layout": {"tensor": 1, "pipeline": 1}}
HOSTS = [
    {"name": f"n{one}", "address": f"10.0.0.{one}", "accelerator": "enflame"} for one in (1, 2)
]
ROUTER = "http://10.0.0.1:8002"


def test_a_router_is_told_every_rank_by_its_address() -> None:
    (told,) = routers.on_host([ENGINE, ALONE], HOSTS, "n1", "0.32.0")
    assert told["ranks"] == [
        {"name": "rank-0", "address": "10.0.0.1", "port": 20220},
        {"name": "rank-1", "address": "10.0.0.2", "port": 20221},
    ]
    assert (told["url"], told["watch_port"]) == (ROUTER, 20216)
    assert (told["process"], told["watch"]) == ("r1-router", "r1-watch")
    assert routers.on_host([ENGINE, ALONE], HOSTS, "n2", "0.32.0") == []


@pytest.mark.parametrize(
    ("kind", "version", "lockstep"),
    [
        ("enflame", "0.9.2", True),
        ("enflame", "0.9.2+gcu", True),
        ("enflame", "0.32.0", False),
        ("nvidia", "0.9.2", False),
        ("enflame", "", False),
    ],
)
def test_only_the_pinned_release_steps_together_or_not_at_all(
    kind: str, version: str, lockstep: bool
) -> None:
    hosts = [{**host, "accelerator": kind} for host in HOSTS]
    (told,) = routers.on_host([ENGINE], hosts, "n1", version)
    assert told["lockstep"] is lockstep


def test_a_run_without_the_host_of_a_rank_is_refused() -> None:
    with pytest.raises(PlanError, match="this run leaves out n2"):
        routers.on_host([ENGINE], HOSTS[:1], "n1", "")


def test_a_host_is_concerned_that_has_one_or_is_to_have_one() -> None:
    recorded = {"old-router": {"engine": ""}, "old-watch": {"engine": ""}}
    others = {"load-page": {"engine": ""}, "x-router": {"engine": "x"}, "a-serve": {"engine": "a"}}
    assert routers.concern([ENGINE], "n1", {})
    assert not routers.concern([ENGINE], "n2", others)
    assert not routers.concern([ALONE], "n1", {})
    assert routers.concern([ALONE], "n1", recorded)
    assert routers.recorded({**recorded, **others}) == ["old"]
    assert routers.strays({**recorded, **others}, [ENGINE], "n1") == ["old"]
    own = {"r1-router": {"engine": ""}}
    assert routers.strays(own, [ENGINE], "n1") == []
    # Its ranks begin elsewhere now, or are one server.
    assert routers.strays(own, [ENGINE], "n2") == ["r1"]
    assert routers.strays(own, [{**ENGINE, "layout": ALONE["layout"]}], "n1") == ["r1"]
    assert routers.removal(["old"]) == [
        {"name": "old-router", "engine": "", "state": "absent"},
        {"name": "old-watch", "engine": "", "state": "absent"},
    ]


def test_ports_are_asked_of_what_does_not_run_yet() -> None:
    (told,) = routers.on_host([ENGINE], HOSTS, "n1", "")
    assert routers.starting_ports(told, {}) == {"8002": "r1-router", "20216": "r1-watch"}
    running = {"r1-router": {"running": False}, "r1-watch": {"running": True}}
    assert routers.starting_ports(told, running) == {"8002": "r1-router"}


@pytest.mark.parametrize("base", [INTERNAL_BASE, 27000])
def test_the_watch_has_a_port_that_nothing_else_of_the_engine_has(base: int) -> None:
    """Where a cluster's ports were moved, its engines answer in their own blocks."""
    ports = asdict(ports_for(0, None, base))
    (told,) = routers.on_host([{**ENGINE, "index": 0, "ports": ports}], HOSTS, "n1", "")
    held = {*ports.values(), *asdict(cluster_ports(base)).values()}
    assert told["watch_port"] not in held
    assert not ports["worker_first"] <= told["watch_port"] <= ports["worker_last"]


def rank(name: str, **how: bool) -> dict[str, Any]:
    up = {"draining": False, "passed": True, "proven": True, "words": "UP"}
    return {"name": name, **up, **how}


DRAINED = {"draining": True, "proven": False}


def test_no_answer_by_way_of_the_router_does_not_hold() -> None:
    told, wrong = {"url": ROUTER, "engine": "r1"}, {"ok": False, "reason": "HTTP 503: {}"}
    found = routers.answer_measurement(wrong, told, [rank("rank-0")], "log")
    assert not found["ok"] and found["found"] == "HTTP 503: {}" and found["fix"] == "read log"
    assert routers.answer_measurement({"ok": True, "answer": "Paris"}, told, [], "log")["ok"]
    # Nobody is left to ask: that is no riddle.
    everybody = [rank("rank-0", **DRAINED), rank("rank-1", **DRAINED)]
    assert "drain_state=ready" in routers.answer_measurement(wrong, told, everybody, "log")["fix"]


def test_a_rank_that_was_told_to_drain_holds_as_long_as_it_could_serve() -> None:
    healthy = [rank("rank-0"), rank("rank-1", **DRAINED)]
    broken = [rank("rank-0"), rank("rank-1", **DRAINED, passed=False)]
    wanted = [{"name": f"rank-{one}", "address": "a", "port": one} for one in range(2)]
    assert routers.settled(healthy) and not routers.settled(broken)
    assert not routers.settled([rank("rank-0", proven=False)])
    for ranks, holds in ((healthy, True), (broken, False)):
        found = routers.measurements({"ranks": ranks}, wanted, "here", "log")
        assert [one["ok"] for one in found] == [True, holds]
    assert routers.state_words("r1", healthy[:1]) == "1 rank, up"
    assert routers.state_words("r1", healthy) == (
        "2 ranks, 1 up; set to drain: rank-1 (playbooks/drain_rank.yml -e drain_engine=r1 "
        "-e drain_rank=1 -e drain_state=ready ends that)"
    )


def test_a_look_that_fails_says_why_of_every_rank() -> None:
    (found,) = routers.measurements(
        {"msg": "the router does not answer", "failed": True},
        [{"name": "rank-0", "address": "a", "port": 1}],
        "here",
        "log",
    )
    assert not found["ok"] and found["found"] == "the router does not answer"


def test_others_look_where_the_router_is() -> None:
    record = {"engine": "", "running": True, "started_at": 0, "pid": 7, "exit_status": None}
    (line,) = status_rows({"r1-router": record}, [ENGINE], "10.0.0.1", 5)
    assert line.endswith(f"{ROUTER}/v1")
    (page,) = load_page.backends([ENGINE], HOSTS, [], ["r1"])
    assert page.port == 8002
    addresses = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
    told = published([ENGINE], addresses, "k", "1", 0, "a@b", 0, {"r1": ROUTER})
    assert told["engines"] == [{"name": "r1", "model": "m", "url": f"{ROUTER}/v1"}]
    ranks = [{"endpoint": "http://10.0.0.1:20220/v1"}]
    one = {"name": "r1", "endpoint": f"{ROUTER}/v1", "router": True, "ranks": ranks}
    assert [door.port for door in doors({"engines": [one]})] == [8002]
    (served,) = served_on({"engines": [{**ENGINE, "reasons": []}]}, HOSTS[0])
    assert (served["router"], served["router_url"]) == ("r1-router", ROUTER)
