"""Dynamo before data ranks: who may have it, its ranks and processes, what its gate judges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from vllm_ansible.plan import dynamo, routers, views
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.ports import Ports
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes
from vllm_ansible.plan.servers import listed
from vllm_ansible.plan.verbs import stop_steps
from vllm_ansible.problem import PlanError

from .test_processes import site_host, value

DENSE = {"path": "/models/m", "experts": 0, "hidden_size": 64}
CHAT = {
    "name": "chat",
    "model": "o/m",
    "layout": {"data": 2, "tensor": 4},
    "front": "dynamo",
}
PLACE = {
    "host": "n1",
    "python": "/tools/python",
    "start": "/routers/dynamo-abc/start.py",
    "run_dir": "/run/v/dynamo0",
    "configuration": "/routers/chat-dynamo",
    "etcd": "/usr/bin/etcd",
    "nats": "/usr/sbin/nats-server",
    "dynamo": "/routers/dynamo-abc/environment/bin/python",
}
FOUND: dict[str, Any] = {
    "reason": "",
    "workers": 2,
    "block_size": 16,
    "prompt_tokens": 80,
    "events": 5,
    "repeats": [[0, 64], [0, 64]],
}


def planned(*counts: int, **changes: Any) -> Plan:
    hosts = [Capacity.whole(f"n{i}", "nvidia", count) for i, count in enumerate(counts or (8,), 1)]
    return make_plan("c", parse_engines([{**CHAT, **changes}]), hosts)


def refused(**changes: Any) -> list[str]:
    with pytest.raises(PlanError) as error:
        parse_engines([{**CHAT, **changes}])
    return [problem.sentence() for problem in error.value.problems]


def ranks(
    made: Plan,
    model: Mapping[str, Any] = DENSE,
    version: str = "0.32.0",
    accelerator: str = "nvidia",
    image: bool = False,
) -> tuple[ProcessSpec, ...]:
    host = {**site_host("n1", "10.0.0.1"), "accelerator": accelerator}
    environment = {
        "directory": "/e",
        "fingerprint": "f",
        "versions": {"vllm": version},
        **({"image": {"tool": "podman"}} if image else {}),
    }
    models = {"n1": {"chat": model}}
    return wanted_processes(made, {"n1": host}, {"n1": environment}, models)["n1"]


def told(made: Plan) -> dict[str, Any]:
    host = {"name": "n1", "address": "10.0.0.1", "accelerator": "nvidia"}
    (found,) = routers.on_host([made.to_dict()["engines"][0]], [host], "n1", "0.32.0")
    return found


def test_an_engine_that_says_nothing_has_the_router_and_the_digest_it_had() -> None:
    plain = planned(front="router").to_dict()["engines"][0]
    assert "front" not in plain
    assert plain["request"] == planned_without_front()["request"]
    assert told(planned(front="router"))["dynamo"] == {}


def planned_without_front() -> dict[str, Any]:
    asked = {key: one for key, one in CHAT.items() if key != "front"}
    made = make_plan("c", parse_engines([asked]), [Capacity.whole("n1", "nvidia", 8)])
    found: dict[str, Any] = made.to_dict()["engines"][0]
    return found


def test_a_plan_that_was_kept_has_its_front() -> None:
    made = planned()
    assert Plan.from_dict(made.to_dict()) == made
    assert made.engines[0].front == "dynamo"


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": {"tensor": 8}},
        {"layout": "auto"},
        {"layout": {"tensor": 2, "pipeline": 2}},
    ],
)
def test_one_server_gives_a_kv_router_nothing_to_choose(changes: dict[str, Any]) -> None:
    (said,) = refused(**changes)
    assert "with one server a KV-aware router has nothing to choose" in said
    assert "two engines of half the devices in place of one" in said


def test_data_ranks_that_the_planner_counts_may_have_it() -> None:
    (engine,) = parse_engines([{**CHAT, "layout": "auto", "executor": "dp"}])
    assert engine.front == "dynamo"


@pytest.mark.parametrize(
    "name",
    [
        "grpc_port",
        "grpc",
        "kv_events_config",
        "kv-events-config",
        "kv_ev",
        "middleware",
        "disable_log_stats",
        "no_enable_prefix_caching",
        "reasoning_parser",
        "tool_call_parser",
    ],
)
def test_arguments_that_dynamo_rules_out_are_refused(name: str) -> None:
    assert "no argument that front: dynamo rules out" in " ".join(refused(vllm_args={name: "1"}))


def test_an_engine_without_a_prefix_cache_is_refused_and_other_arguments_are_not() -> None:
    (said,) = refused(vllm_args={"enable_prefix_caching": False})
    assert "leave out front: dynamo" in said
    parse_engines([{**CHAT, "vllm_args": {"enable_prefix_caching": True, "block_size": 64}}])
    parse_engines([{**CHAT, "front": "router", "vllm_args": {"kv_events_config": "{}"}}])


def test_more_ranks_than_there_are_ports_for_are_refused() -> None:
    (said,) = refused(layout={"data": 21})
    assert "at most 20 data ranks" in said


def test_an_unknown_front_is_refused_with_what_there_is() -> None:
    (said,) = refused(front="dynamoo")
    assert "one of router, dynamo" in said


ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
SITES = [
    {"name": name, "address": address, "accelerator": "nvidia"}
    for name, address in ADDRESSES.items()
]


def over_hosts(host: str) -> dict[str, Any]:
    """Return what a host is told of the Dynamo of an engine with a rank on each of two."""
    (found,) = routers.beside(planned(8, 8, layout=SPREAD).to_dict()["engines"], SITES, host)
    wanted: dict[str, Any] = found["dynamo"]
    return wanted


SPREAD = {"data": 2, "tensor": 8}


def test_one_engine_of_eight_devices_on_each_of_two_hosts_has_one_dynamo() -> None:
    made = planned(8, 8, layout=SPREAD)
    (engine,) = made.to_dict()["engines"]
    assert engine["hosts"] == ["n1", "n2"]
    (first,) = routers.on_host([engine], SITES, "n1", "0.32.0")
    assert routers.on_host([engine], SITES, "n2", "0.32.0") == []
    # Its router stands before the frontend of its own host.
    assert first["ranks"] == [{"name": "dynamo", "address": "127.0.0.1", "port": 20003}]
    assert first["dynamo"] == over_hosts("n1") == over_hosts("n2")
    assert dynamo.process_names(first["dynamo"], "n1") == [
        *("chat-etcd", "chat-nats", "chat-sidecar-0", "chat-dynamo"),
    ]
    assert dynamo.process_names(first["dynamo"], "n2") == ["chat-sidecar-1"]
    assert [routers.concern([engine], name, {}) for name in ("n1", "n2", "n3")] == [1, 1, 0]
    with pytest.raises(PlanError, match="this run leaves out n2"):
        routers.beside([engine], SITES[:1], "n1")


def test_engines_of_several_hosts_stay_on_loopback_beside_their_sidecars() -> None:
    made = planned(8, 8, layout=SPREAD)
    hosts = {name: site_host(name, address) for name, address in ADDRESSES.items()}
    environment = {"directory": "/e", "fingerprint": "f", "versions": {"vllm": "0.32.0"}}
    found = wanted_processes(
        made, hosts, dict.fromkeys(hosts, environment), {name: {"chat": DENSE} for name in hosts}
    )
    for rank, name in enumerate(hosts):
        (spec,) = found[name]
        assert spec.name == f"chat-serve-{rank}"
        assert value(spec, "--host") == "127.0.0.1"
        assert json.loads(value(spec, "--kv-events-config"))["endpoint"].startswith("ipc:///")


def test_a_model_at_another_path_of_another_host_is_refused() -> None:
    """The frontend reads the tokenizer of every sidecar at the path that the sidecar names."""
    hosts = {name: site_host(name, address) for name, address in ADDRESSES.items()}
    environment = {"directory": "/e", "fingerprint": "f", "versions": {"vllm": "0.32.0"}}
    environments = dict.fromkeys(hosts, environment)
    models = {"n1": {"chat": DENSE}, "n2": {"chat": {**DENSE, "path": "/data/m"}}}
    with pytest.raises(PlanError, match="not at one path") as error:
        wanted_processes(planned(8, 8, layout=SPREAD), hosts, environments, models)
    (problem,) = error.value.problems
    assert problem.found == "n1: /models/m, n2: /data/m"
    assert "models_dir" in problem.fix
    routed = planned(8, 8, layout=SPREAD, front="router")
    assert wanted_processes(routed, hosts, environments, models)


def on_hosts(word: str = "") -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the steps of each host of an engine over two."""
    return {
        host: dynamo.steps(
            over_hosts(host), {**PLACE, "host": host, "secrets": word}, {}, "vllm", "lock"
        )
        for host in ADDRESSES
    }


def test_what_hosts_say_to_each_other_listens_on_the_data_plane_alone() -> None:
    steps = on_hosts()
    (etcd, nats), (front,) = steps["n1"]["stores"], steps["n1"]["front"]
    assert (steps["n2"]["stores"], steps["n2"]["front"]) == ([], [])
    assert etcd["argv"][-1] == "http://10.0.0.1:20001"
    assert nats["depends"]["configuration"].startswith("listen: 10.0.0.1:20002\n")
    # Its router alone asks it.
    assert "--http-host=127.0.0.1" in front["argv"]
    assert front["environment"]["DYN_TCP_RESPONSE_STREAM_PORT"] == "20004"
    (one,), (two,) = steps["n1"]["sidecars"], steps["n2"]["sidecars"]
    for step, address in ((front, "10.0.0.1"), (one, "10.0.0.1"), (two, "10.0.0.2")):
        environment = step["environment"]
        # Its own pages can pause an engine; the frontend reads the model's files from its disk.
        assert environment.pop("DYN_SYSTEM_HOST") == "127.0.0.1"
        assert environment["DYN_SELF_HOST_METADATA"] == "0"
        listens = [text for name, text in environment.items() if name.endswith("_HOST")]
        assert listens == [address] * 3
        assert environment["ETCD_ENDPOINTS"] == "http://10.0.0.1:20001"
        assert environment["NATS_SERVER"] == "nats://10.0.0.1:20002"
        assert environment["DYN_EVENT_PLANE"] == "nats"
        assert environment["DYN_DISABLE_FRONTEND_ADMIN_API"] == "1"
        assert environment["DYN_DISABLE_FRONTEND_NVEXT"] == "1"
        # Who has not this key is answered by none of them.
        assert environment["DYN_TCP_TLS_CLIENT_CA_CERT_PATH"] == "/routers/chat-dynamo/tls.crt"
        assert environment["DYN_TCP_TLS_KEY_PATH"] == "/routers/chat-dynamo/tls.key"
    assert not [name for name in all_steps(planned())["front"][0]["environment"] if "TLS" in name]
    assert "--grpc-endpoint=127.0.0.1:20041" in two["argv"]
    assert two["environment"]["DYN_TCP_RPC_PORT"] == "20081"
    assert dynamo.known_at(over_hosts("n1")) == ["10.0.0.1:20080", "10.0.0.2:20081"]
    everything = json.dumps(steps)
    assert "0.0.0.0" not in everything  # noqa: S104 - it must not be there
    assert everything.count("PASSWORD") == everything.count("$DYNAMO_PASSWORD") == 1


def test_each_host_asks_for_the_ports_of_its_own_processes() -> None:
    found = over_hosts("n1")
    first = dynamo.starting_ports(found, {}, "n1")
    assert set(first) == {"20001", "20002", "20003", "20004", "20060", "20080"}
    assert set(dynamo.starting_ports(found, {}, "n2")) == {"20061", "20081"}
    assert "20004" not in dynamo.starting_ports(told(planned())["dynamo"], {}, "n1")


def test_a_sidecar_whose_etcd_has_lost_everything_starts_again() -> None:
    """The password is of the first start of that etcd, and comes from its host."""
    before, after = on_hosts("a"), on_hosts("b")
    assert before["n2"]["sidecars"] != after["n2"]["sidecars"]
    assert before["n1"]["front"] != after["n1"]["front"]
    assert "secrets" not in all_steps(planned())["sidecars"][0]["depends"]


def test_what_a_host_has_no_part_in_any_more_is_removed() -> None:
    engines = planned(8, 8, layout=SPREAD).to_dict()["engines"]
    processes = {name: record() for name in ("chat-etcd", "chat-sidecar-0", "chat-sidecar-1")}
    assert dynamo.strays(processes, engines, "n1") == ["chat-sidecar-1"]
    assert dynamo.strays(processes, engines, "n2") == ["chat-sidecar-0", "chat-etcd"]
    assert len(dynamo.strays(processes, engines, "n3")) == 3


def test_status_asks_for_engines_of_all_hosts_where_the_frontend_runs() -> None:
    engines = planned(8, 8, layout=SPREAD).to_dict()["engines"]
    processes = {"chat-dynamo": {"running": True}, "chat-sidecar-1": {"running": True}}
    (found,) = dynamo.running(processes, engines, "n1", SITES)
    assert dynamo.known_at(found["dynamo"]) == ["10.0.0.1:20080", "10.0.0.2:20081"]
    assert dynamo.running(processes, engines, "n2", SITES) == []
    judged = dynamo.state_measurement({"workers": 1}, found["dynamo"], "n1", "/logs")
    assert not judged["ok"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"version": "0.31.0"}, "vLLM 0.31.0"),
        ({"accelerator": "enflame", "version": ""}, "Enflame"),
        ({"image": True}, "an engine in an image"),
        ({"model": {**DENSE, "experts": 8}}, "a mixture of experts"),
    ],
)
def test_ranks_without_grpc_or_independence_are_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanError, match="cannot have front: dynamo") as error:
        ranks(planned(), **how)
    assert why in str(error.value)


def test_ranks_listen_on_loopback_with_grpc_and_events_in_a_private_directory() -> None:
    made = planned()
    for number, spec in enumerate(ranks(made)):
        assert value(spec, "--host") == "127.0.0.1"
        assert value(spec, "--port") == str(20020 + number)
        assert value(spec, "--grpc-port") == str(20040 + number)
        events = json.loads(value(spec, "--kv-events-config"))
        assert events["endpoint"].startswith("ipc:///")
        assert events["endpoint"].endswith(f"/kv{number}.sock")
        assert "--middleware" not in spec.argv
        assert spec.environment["VLLM_USE_RUST_FRONTEND"] == "1"
    engine = made.to_dict()["engines"][0]
    host = {"name": "n1", "address": "10.0.0.1", "accelerator": "nvidia"}
    assert {one["address"] for one in listed([engine], [host])} == {"127.0.0.1"}
    assert not any(one["guarded"] for one in listed([engine], [host]))
    steps = [{"name": spec.name, "engine": "chat", "part": "serve"} for spec in ranks(made)]
    decision = {
        "engines": {"chat": {"action": "start"}},
        "hosts": {"n1": {"start_heads": [], "start_workers": [], "start_serve": steps}},
    }
    assert {"20020", "20040", "20021", "20041"} <= set(
        views.starting_ports(decision, "n1", [engine])
    )


def test_the_router_stands_before_dynamo_alone_which_knows_each_rank() -> None:
    found = told(planned())
    assert found["ranks"] == [{"name": "dynamo", "address": "127.0.0.1", "port": 20003}]
    assert found["url"] == "http://10.0.0.1:8000"
    assert [one["grpc"] for one in found["dynamo"]["sidecars"]] == [20040, 20041]
    assert dynamo.process_names(found["dynamo"], "n1") == [
        *("chat-etcd", "chat-nats", "chat-sidecar-0", "chat-sidecar-1", "chat-dynamo"),
    ]


def test_no_port_has_two_owners() -> None:
    made = planned(8, layout={"data": 8, "tensor": 1})
    ports: Ports = made.engines[0].ports
    found = told(made)["dynamo"]
    mine = [*dynamo.ports(found, "n1"), *(one["grpc"] for one in found["sidecars"])]
    mine += [server.port for server in made.engines[0].servers()]
    mine += [ports.gcs, ports.gcs + routers.WATCH_PORT]
    assert len(mine) == len(set(mine))
    assert all(ports.gcs <= port <= ports.worker_last for port in mine)


def all_steps(made: Plan, **processes: Any) -> dict[str, list[dict[str, Any]]]:
    return dynamo.steps(told(made)["dynamo"], PLACE, processes, "vllm", "lock")


def test_its_processes_listen_on_loopback_and_no_secret_is_in_what_they_are_given() -> None:
    steps = all_steps(planned())
    (etcd, nats), (front,) = steps["stores"], steps["front"]
    assert etcd["argv"][-1] == "http://127.0.0.1:20001"
    assert nats["argv"][-2:] == ["-c", "/routers/chat-dynamo/nats.conf"]
    assert "--http-host=127.0.0.1" in front["argv"]
    assert front["environment"]["DYN_DISABLE_FRONTEND_NVEXT"] == "1"
    assert front["environment"]["DYN_EVENT_PLANE"] == "nats"
    everything = json.dumps(steps)
    # By its name alone, which NATS looks up.
    assert everything.count("PASSWORD") == everything.count("$DYNAMO_PASSWORD") == 1
    assert "0.0.0.0" not in everything  # noqa: S104 - it must not be there
    assert "$DYNAMO_PASSWORD" in dynamo.nats_configuration(told(planned())["dynamo"])
    assert all(one["restart"] and not one["engine"] for part in steps.values() for one in part)


def test_a_sidecar_starts_again_with_its_engine_and_nothing_else_does() -> None:
    record = {"running": True, "instance": "one"}
    before = all_steps(planned(), **{"chat-serve-1": record})
    after = all_steps(planned(), **{"chat-serve-1": {**record, "instance": "two"}})
    assert before["stores"] == after["stores"]
    assert before["front"] == after["front"]
    assert before["sidecars"][0] == after["sidecars"][0]
    assert before["sidecars"][1] != after["sidecars"][1]


def record(engine: str = "", running: bool = True) -> dict[str, Any]:
    return {"engine": engine, "running": running}


PROCESSES = {
    **{name: record() for name in ("chat-etcd", "chat-nats", "chat-sidecar-0", "chat-sidecar-2")},
    **{name: record() for name in ("chat-dynamo", "chat-router", "old-etcd", "old-dynamo")},
    "chat-serve-0": record("chat"),
}


def test_what_no_engine_has_any_more_is_removed_and_stores_go_last() -> None:
    engine = planned().to_dict()["engines"][0]
    strays = dynamo.strays(PROCESSES, [engine], "n1")
    assert strays == ["chat-sidecar-2", "old-dynamo", "old-etcd"]
    gone = dynamo.strays(PROCESSES, [], "n1")
    assert gone[-3:] == ["chat-etcd", "chat-nats", "old-etcd"]
    assert set(gone) == set(PROCESSES) - {"chat-router", "chat-serve-0"}
    assert dynamo.removal(["a-etcd"]) == [{"name": "a-etcd", "engine": "", "state": "absent"}]
    assert routers.concern([], "n1", {"old-etcd": record()})
    stopped = [one["name"] for one in stop_steps(PROCESSES, True, False)]
    assert stopped.index("chat-dynamo") < stopped.index("chat-serve-0")
    # Of all hosts, what is registered there ends first.
    last = [one["name"] for one in stop_steps(PROCESSES, False, False)]
    assert last == ["chat-etcd", "chat-nats", "old-etcd"]


def test_ports_are_asked_of_what_does_not_run_yet() -> None:
    found = told(planned())["dynamo"]
    running = {"chat-etcd": {"running": True}, "chat-nats": {"running": False}}
    assert set(dynamo.starting_ports(found, running, "n1")) == {
        *("20002", "20003", "20060", "20061", "20080", "20081"),
    }


def judged(**changes: Any) -> list[str]:
    wanted = told(planned())["dynamo"]
    found = dynamo.measurements({**FOUND, **changes}, wanted, "n1", "/logs")
    return [str(one["what"]) for one in found if not one["ok"]]


def test_the_gate_passes_where_every_repeat_is_hit_at_one_engine() -> None:
    assert judged() == []
    assert "Dynamo before 2 engines, 5 KV events applied, 80 % of" in dynamo.summary("chat", FOUND)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"workers": 1}, "every engine known to Dynamo"),
        ({"events": 0}, "KV events applied by the router"),
        ({"repeats": [[0, 64], [64, 0]]}, "a repeated prefix at the engine that has it"),
        ({"repeats": [[0, 64], [0, 16]]}, "a repeated prefix at the engine that has it"),
        ({"repeats": []}, "a repeated prefix at the engine that has it"),
        ({"block_size": 0}, "a repeated prefix at the engine that has it"),
    ],
)
def test_the_gate_fails_for_each_of_its_measurements(changes: dict[str, Any], what: str) -> None:
    (missed,) = judged(**changes)
    assert missed.startswith(what)


def test_a_question_without_an_answer_is_the_only_thing_said() -> None:
    wanted = told(planned())["dynamo"]
    (one,) = dynamo.measurements({"reason": "HTTP 503: none"}, wanted, "n1", "/logs")
    assert not one["ok"]
    assert one["found"] == "HTTP 503: none"
    (one,) = dynamo.measurements({"failed": True, "msg": "no file"}, wanted, "n1", "/logs")
    assert one["found"] == "no file"


def test_status_asks_a_frontend_that_runs_on_its_host() -> None:
    engine = planned().to_dict()["engines"][0]
    processes = {"chat-dynamo": {"running": True}}
    (found,) = dynamo.running(processes, [engine], "n1")
    assert found["engine"] == "chat"
    assert found["dynamo"]["url"] == told(planned())["dynamo"]["url"]
    servers = [one["server"] for one in found["dynamo"]["sidecars"]]
    assert servers == [one["server"] for one in told(planned())["dynamo"]["sidecars"]]
    assert dynamo.running(processes, [engine], "n2") == []
    assert dynamo.running({}, [engine], "n1") == []
    assert dynamo.running(processes, [planned_without_front()], "n1") == []
