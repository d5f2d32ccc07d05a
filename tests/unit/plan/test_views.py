from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from vllm_ansible.plan import views
from vllm_ansible.plan.decision import PHASES
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.environment import KEPT_ON_THEIR_HOST
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.plan.ports import Ports, ports_for

HOSTS = [
    {
        "name": f"n{number}",
        "address": f"10.0.0.{number}",
        "cluster_dir": "/opt/c",
        "run_dir": "/run/vllm-c",
    }
    for number in (1, 2)
]
ONE, TWO = HOSTS
# a spans both hosts and serves from n1; b is on n2 alone.
ENGINES: list[dict[str, Any]] = make_plan(
    "c",
    parse_engines(
        [
            {"name": "a", "model": "o/a", "nodes": 2, "layout": {"pipeline": 2}},
            {"name": "b", "model": "o/b", "hosts": ["n2"], "vllm_args": {"max_model_len": 64}},
        ]
    ),
    [Capacity.whole(host["name"], "cpu", 2) for host in HOSTS],
).to_dict()["engines"]


def test_the_plan_of_these_tests_is_as_they_say() -> None:
    assert [engine["hosts"] for engine in ENGINES] == [["n1", "n2"], ["n2"]]


def test_a_host_sees_the_engines_that_have_a_rank_there() -> None:
    assert [one["name"] for one in views.engines_on(ENGINES, "n1")] == ["a"]
    assert [one["name"] for one in views.engines_on(ENGINES, "n2")] == ["a", "b"]
    assert views.engines_on(ENGINES, "n3") == []


def test_members_are_addresses_and_planned_devices() -> None:
    assert views.members(ENGINES[0], HOSTS) == {
        "n1": {"address": "10.0.0.1", "devices": 1},
        "n2": {"address": "10.0.0.2", "devices": 1},
    }
    assert list(views.members(ENGINES[1], HOSTS)) == ["n2"]


def test_every_engine_has_a_ray_directory_of_its_own() -> None:
    assert views.ray_dirs(ENGINES, ONE) == {"a": "/run/vllm-c/0", "b": "/run/vllm-c/1"}


def test_directories_are_those_of_the_hosts_engines_parents_first() -> None:
    assert views.directories(ENGINES, ONE) == [
        "/run/vllm-c",  # a restart of the host takes it
        "/opt/c/engines/a",
        "/opt/c/engines/a/config",
        "/opt/c/engines/a/cache",
        "/run/vllm-c/t0",
        "/opt/c/engines/a/cache/ray_bootstrap_config.yaml",  # keeps Ray from asking clouds
    ]
    assert "/opt/c/engines/b/config" in views.directories(ENGINES, TWO)


def test_the_first_host_alone_parses_the_arguments() -> None:
    models = {"a": "/models/a", "b": "/models/b"}
    found = views.parser_arguments(ENGINES, "n2", models)
    assert list(found) == ["b"]
    assert found["b"][:4] == [
        "/models/b",
        "--tensor-parallel-size=1",
        "--pipeline-parallel-size=1",
        "--distributed-executor-backend=ray",
    ]
    assert found["b"][4:] == ENGINES[1]["arguments"] != []
    assert "--pipeline-parallel-size=2" in views.parser_arguments(ENGINES, "n1", models)["a"]


def test_the_key_goes_only_where_a_server_reads_it() -> None:
    assert views.key_files(ENGINES, ONE, "/state/api_key") == {"a/key.yaml": "/state/api_key"}
    assert views.key_files(ENGINES, TWO, "/state/api_key") == {"b/key.yaml": "/state/api_key"}


def test_variables_of_one_host_are_not_carried_to_another() -> None:
    found = views.carry_over_files(ENGINES, TWO)
    assert set(found) == {f"{name}/config/ray_non_carry_over_env_vars.json" for name in ("a", "b")}
    assert all(json.loads(text) == sorted(KEPT_ON_THEIR_HOST) for text in found.values())


def decision(*steps: tuple[str, str, str], action: str = "start") -> dict[str, Any]:
    """Return a decision with steps of phase, part and engine on n1."""
    phases: dict[str, list[dict[str, str]]] = {phase: [] for phase in PHASES}
    for phase, part, engine in steps:
        phases[phase].append({"name": f"{engine}-{part}", "engine": engine, "part": part})
    engines = {engine: {"action": action} for _, _, engine in steps}
    return {"hosts": {"n1": phases}, "engines": engines}


def test_only_what_is_about_to_start_needs_its_ports() -> None:
    stops = decision(("stop_serve", "serve", "a"), ("stop_heads", "head", "a"))
    assert views.starting_ports(stops, "n1", ENGINES) == {}
    serve = decision(("start_serve", "serve", "b"))
    assert views.starting_ports(serve, "n1", ENGINES) == {"8001": "b-serve (api)"}
    worker = views.starting_ports(decision(("start_workers", "worker", "b")), "n1", ENGINES)
    assert worker["20103"] == "b-worker (node manager)"
    assert not {"20100", "20101", "20102"} & set(worker)  # the head's


def test_check_mode_does_not_take_what_would_be_stopped_for_a_stranger() -> None:
    start = ("start_serve", "serve", "b")
    assert views.starting_ports(decision(start), "n1", ENGINES, check=True) != {}
    restart = decision(start, action="restart")
    assert views.starting_ports(restart, "n1", ENGINES) != {}
    assert views.starting_ports(restart, "n1", ENGINES, check=True) == {}


def test_head_and_server_together_take_every_port_with_a_fixed_number() -> None:
    named = [name for part in ("head", "serve") for name in views.PORTS_OF[part]]
    # The rendezvous of an engine without Ray, and the range of workers, are nobody's to name.
    assert set(asdict(ports_for(0))) - set(named) == {"master", "worker_first", "worker_last"}
    assert set(named) <= set(Ports.__dataclass_fields__)


@pytest.mark.parametrize("free", [True, False])
def test_a_listener_on_a_planned_port_is_a_stranger(free: bool) -> None:
    held = [{"port": 9000 if free else 8000, "pid": 7, "who": "nginx (process 7 of root)"}]
    (one,) = views.port_measurements(held, {"8000": "a-serve (api)"}, "n1")
    assert one["ok"] is free and one["where"] == "n1:8000"
    assert one["what"] == "port 8000 for a-serve (api)"
    assert one["found"] == ("free" if free else "nginx (process 7 of root) listens there")
    assert "port_base" in one["fix"]
