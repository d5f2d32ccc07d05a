"""Prefill and decode apart: what belongs together, where it listens, what stands before it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from filter_plugins.router_filters import FilterModule
from tests.conftest import ROOT
from vllm_ansible.door import served
from vllm_ansible.load_page import offer
from vllm_ansible.plan import dynamo, pairs, routers, views
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes
from vllm_ansible.plan.servers import servers
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.reach.purposes import purposes

from .test_processes import site_host, value

ENGINE = {"model": "o/m", "served_name": "m", "layout": {"tensor": 2}}
READ = {**ENGINE, "name": "read", "role": "prefill"}
WRITE = {**ENGINE, "name": "write", "role": "decode"}
HOSTS = {f"n{number}": site_host(f"n{number}", number) for number in (1, 2)}


def planned(*engines: dict[str, Any], accelerator: str = "cpu", kept: Plan | None = None) -> Plan:
    capacities = [Capacity.whole(name, accelerator, 4) for name in HOSTS]
    return make_plan("c", parse_engines(list(engines or (READ, WRITE))), capacities, kept)


def refused(*engines: dict[str, Any]) -> list[str]:
    with pytest.raises(PlanError) as error:
        parse_engines(list(engines))
    return [f"{one.sentence()} Found: {one.found}" for one in error.value.problems]


def specs(plan: Plan, accelerator: str = "cpu", **environment: Any) -> dict[str, ProcessSpec]:
    hosts = {
        name: {**host, "accelerator": accelerator}
        for name, host in HOSTS.items()
        if any(name in engine.hosts for engine in plan.engines)
    }
    models = {host: {one.name: {"path": "/models/m"} for one in plan.engines} for host in hosts}
    place = {"directory": "/e", "fingerprint": "f", "nixl": "/c/nixl/abc", **environment}
    found = wanted_processes(plan, hosts, dict.fromkeys(hosts, place), models)
    return {spec.name: spec for of_host in found.values() for spec in of_host}


def told(plan: Plan, host: str = "n1") -> list[dict[str, Any]]:
    return routers.on_host(plan.to_dict()["engines"], HOSTS.values(), host, "0.32.0")


@pytest.mark.parametrize(
    ("engine", "other"), [({**READ}, "decode"), ({**WRITE}, "prefill")], ids=["prefill", "decode"]
)
def test_one_role_needs_the_other_of_the_same_name(engine: dict[str, Any], other: str) -> None:
    (said,) = refused(engine)
    assert f"m has role {engine['role']} ({engine['name']}) and no engine with role {other}" in said
    assert f"add an engine with role: {other}, the same model and served_name: m" in said
    beside = {**(WRITE if other == "decode" else READ), "served_name": "other"}
    assert len(refused(engine, beside)) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "o/n", "served_name": "m"}, "model differ"),
        ({"layout": {"tensor": 1}}, "layout differ"),
        ({"vllm_args": {"dtype": "float16"}}, "dtype float16"),
        ({"vllm_args": {"kv-cache-dtype": "fp8"}}, "kv_cache_dtype fp8"),
        ({"vllm_args": {"block_size": 32}}, "read: block_size vLLM's default"),
    ],
)
def test_engines_that_could_not_exchange_caches_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    (found,) = refused(READ, {**WRITE, **changes})
    assert "engines read (prefill) and write (decode) cannot exchange KV caches" in found
    assert said in found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout": "auto"}, "expected {tensor: N} for role decode"),
        ({"layout": {"data": 2, "tensor": 1}}, "one server on one host"),
        ({"layout": {"tensor": 2, "pipeline": 2}}, "one server on one host"),
        ({"executor": "ray"}, "expected mp, or none, for role decode"),
        ({"front": "dynamo"}, "write front: dynamo in each of them, or in none"),
        ({"front": "dynamo", "vllm_args": {"grpc_port": 1}}, "the port is the plan's"),
        ({"vllm_args": {"kv-transfer-config": "{}"}}, "the plan writes it from role"),
        ({"vllm_args": {"kv_transfer_config.kv_role": "x"}}, "the plan writes it from role"),
        ({"vllm_args": {"disable_log_stats": True}}, "the gate reads these counters"),
        ({"environment": {"VLLM_NIXL_SIDE_CHANNEL_PORT": 1}}, "no variable of the plan"),
    ],
)
def test_what_a_role_rules_out_is_refused_in_one_sentence(
    changes: dict[str, Any], said: str
) -> None:
    found = refused(READ, {**WRITE, **changes})
    assert any(said in one for one in found), found


def test_a_name_is_served_by_a_set_or_by_others() -> None:
    (said,) = refused(READ, WRITE, {**ENGINE, "name": "both"})
    assert "m is served by a set of prefill and decode and by engine both" in said
    parse_engines([READ, WRITE, {**ENGINE, "name": "other", "served_name": "other"}])


def test_a_role_that_is_not_said_changes_nothing() -> None:
    said = planned({**ENGINE, "name": "a", "role": "serve"})
    assert said == planned({**ENGINE, "name": "a"})
    assert "front" not in said.to_dict()["engines"][0]


def test_servers_and_side_channels_have_ports_of_their_own_and_no_ray() -> None:
    plan = planned()
    ports = [one.port for engine in plan.to_dict()["engines"] for one in servers(engine)]
    assert ports == [20020, 20120]
    assert {engine.executor for engine in plan.engines} == {"mp"}
    found = specs(plan)
    assert value(found["read-serve"], "--port") == "20020"
    decision = {
        "engines": {one: {"action": "start"} for one in ("read", "write")},
        "hosts": {
            "n1": {
                "start_heads": [],
                "start_workers": [],
                "start_serve": [
                    {"name": f"{one}-serve", "engine": one, "part": "serve"}
                    for one in ("read", "write")
                ],
            }
        },
    }
    listened = views.starting_ports(decision, "n1", plan.to_dict()["engines"])
    assert list(listened) == ["20020", "20017", "20120", "20117"]
    known = purposes([READ, WRITE], 20000)
    assert known[20017] == "what KV caches can be fetched of engine read"
    assert known[20120] == "the API of decode of engine write"


@pytest.mark.parametrize("accelerator", ["cpu", "nvidia"])
def test_the_product_writes_what_connects_them(accelerator: str) -> None:
    found = specs(planned(accelerator=accelerator), accelerator)
    for name, role, port in (
        ("read-serve", "kv_producer", "20017"),
        ("write-serve", "kv_consumer", "20117"),
    ):
        config = json.loads(value(found[name], "--kv-transfer-config"))
        assert config["kv_connector"] == "NixlConnector"
        assert config["kv_role"] == role
        assert config["kv_load_failure_policy"] == "fail"
        # vLLM buffers in the memory of its own platform.
        assert "kv_buffer_device" not in config
        environment = found[name].environment
        assert environment["PYTHONPATH"] == "/c/nixl/abc"
        assert environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.1"
        assert environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] == port
        assert environment.get("UCX_NET_DEVICES") == ("eth1" if accelerator == "cpu" else None)


def test_without_nixl_or_in_an_image_none_starts() -> None:
    with pytest.raises(PlanError, match=r"read has role prefill, and n1 has no NIXL.*install"):
        specs(planned(), nixl="")
    with pytest.raises(PlanError, match="an engine in an image cannot have"):
        specs(planned(), image={"tool": "podman"})


def test_the_address_of_the_set_is_that_of_its_first_decode_engine() -> None:
    again = {**WRITE, "name": "more"}
    plan = planned({**READ, "hosts": ["n2"]}, WRITE, again)
    (router,) = told(plan)
    assert router["engine"] == "write"
    assert router["url"] == "http://10.0.0.1:8001"
    assert router["ranks"] == [{"name": "pairs", "address": "127.0.0.1", "port": 20101}]
    front = router["pairs"]
    assert front["prefill"] == [{"engine": "read", "url": "http://10.0.0.2:20020"}]
    assert [one["url"] for one in front["decode"]] == [
        "http://10.0.0.1:20120",
        "http://10.0.0.1:20220",
    ]
    (step,) = pairs.steps(
        front,
        {"python": "/p", "start": "/s.py", "key_file": "/k", "run_dir": "/r", "router": "/v"},
        "vllm",
        {"lock": "l"},
    )
    words = step["argv"]
    assert words[:8] == ["/p", "-s", "-E", "/s.py", "/k", "/v", "-m", "vllm_router.launch_router"]
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[-6:] == [
        *("--prefill", "http://10.0.0.2:20020", "--decode", "http://10.0.0.1:20120"),
        *("--decode", "http://10.0.0.1:20220"),
    ]
    # Where the first decode engine goes, the next one answers.
    (other,) = told(planned(READ, again, kept=plan))
    assert other["engine"] == "more"
    assert Plan.from_dict(plan.to_dict()) == plan


def test_a_router_needs_every_host_of_the_set() -> None:
    plan = planned({**READ, "hosts": ["n2"]}, WRITE).to_dict()["engines"]
    with pytest.raises(PlanError, match="this run leaves out n2"):
        routers.on_host(plan, [HOSTS["n1"]], "n1", "0.32.0")


BEHIND = ({**READ, "front": "dynamo"}, {**WRITE, "front": "dynamo"})


def test_dynamo_before_a_set_asks_prefill_then_decode() -> None:
    """The first decode engine has the frontend; each engine has a sidecar that says its role."""
    plan = planned(*BEHIND)
    (router,) = told(plan)
    assert router["engine"] == "write"
    assert router["ranks"] == [{"name": "dynamo", "address": "127.0.0.1", "port": 20103}]
    assert router["pairs"] == {}
    assert router["moves"] == {
        "process": "write-dynamo",
        "sized": False,
        "prefill": [{"engine": "read", "url": "http://127.0.0.1:20020"}],
        "decode": [{"engine": "write", "url": "http://127.0.0.1:20120"}],
    }
    place = {one: f"/{one}" for one in ("python", "start", "run_dir", "configuration", "dynamo")}
    place |= {"etcd": "/etcd", "nats": "/nats", "host": "n1"}
    read, write = dynamo.steps(router["dynamo"], place, {}, None, "l")["sidecars"]
    assert (read["name"], write["name"]) == ("read-sidecar-0", "write-sidecar-0")
    assert read["argv"][-4:] == [
        *("--grpc-endpoint=127.0.0.1:20040", "--namespace=vllm-ansible"),
        *("--component=prefill", "--disaggregation-mode=prefill"),
    ]
    assert write["argv"][-2:] == ["--namespace=vllm-ansible", "--disaggregation-mode=decode"]
    assert Plan.from_dict(plan.to_dict()) == plan
    again = planned(*BEHIND, kept=plan)
    assert again.to_dict() == plan.to_dict()


def test_servers_behind_dynamo_are_on_loopback_and_prefill_alone_sends_events() -> None:
    found = specs(planned(*BEHIND))
    for name, port in (("read-serve", "20040"), ("write-serve", "20140")):
        assert value(found[name], "--host") == "127.0.0.1"
        assert value(found[name], "--grpc-port") == port
        assert "--middleware" not in found[name].argv
        assert found[name].environment["VLLM_USE_RUST_FRONTEND"] == "1"
        # Where another engine fetches: the side channel stays on the data plane.
        assert found[name].environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.1"
    assert "--kv-events-config" in found["read-serve"].argv
    assert "--kv-events-config" not in found["write-serve"].argv
    with pytest.raises(PlanError, match=r"engine read cannot have front: dynamo: vLLM 0\.31"):
        specs(planned(*BEHIND), versions={"vllm": "0.31.0"})


def test_dynamo_and_a_set_of_several_hosts_are_refused_with_what_serves_instead() -> None:
    with pytest.raises(PlanError, match=r"front: dynamo and engines on 2 hosts.*vLLM's router"):
        planned({**BEHIND[0], "hosts": ["n2"]}, BEHIND[1])


def test_a_set_whose_dynamo_runs_is_known_and_what_is_left_of_it_goes() -> None:
    plan = planned(*BEHIND).to_dict()["engines"]
    names = ["etcd", "nats", "dynamo", "sidecar-0"]
    recorded = {f"write-{one}": {"engine": "", "running": True} for one in names}
    recorded["read-sidecar-0"] = {"engine": "", "running": True}
    assert dynamo.strays(recorded, plan, "n1") == []
    assert len(dynamo.strays(recorded, planned().to_dict()["engines"], "n1")) == 5
    (one,) = dynamo.running(recorded, plan, "n1")
    assert one["engine"] == "write"
    assert {side["server"] for side in one["dynamo"]["sidecars"]} == {
        "http://127.0.0.1:20020",
        "http://127.0.0.1:20120",
    }
    assert pairs.strays({"write-pairs": {"engine": "", "running": True}}, plan, "n1") == [
        "write-pairs"
    ]


def test_clients_and_the_load_page_know_the_set_alone() -> None:
    plan, running = planned().to_dict()["engines"], {"n1": {"write-router": {}}}
    (model,) = served.models(plan, HOSTS.values(), running)
    (server,) = model["servers"]
    assert (server["name"], server["address"], server["port"]) == ("write-router", "10.0.0.1", 8001)
    (one,) = offer.backends(plan, HOSTS.values(), [], ["write"])
    assert (one.name, one.port) == ("write", 8001)


def test_a_front_that_runs_is_known_and_one_without_a_set_is_removed() -> None:
    plan = planned().to_dict()["engines"]
    recorded = {"write-pairs": {"engine": "", "running": True}}
    (router,) = told(planned())
    assert pairs.starting_ports(router["pairs"], {}) == dict.fromkeys(
        ("20101", "20102"), "write-pairs"
    )
    assert pairs.starting_ports(router["pairs"], recorded) == {}
    assert pairs.strays(recorded, plan, "n1") == []
    assert pairs.strays(recorded, plan, "n2") == ["write-pairs"]
    assert pairs.strays(recorded, (), "n1") == ["write-pairs"]
    assert routers.concern((), "n1", recorded)


def test_the_front_of_a_former_set_goes_before_its_ports_are_judged() -> None:
    """A decode engine that serves alone now has a Ray head at the ports of its former front."""
    tasks = yaml.safe_load((ROOT / "roles/ray/tasks/change.yml").read_text())
    names = [task["name"] for task in tasks]
    number = names.index("Remove routers and fronts that have no servers any more")
    assert number < names.index("See who holds the ports of what is about to start")
    jinja = NativeEnvironment()
    jinja.filters.update(FilterModule().filters())
    processes = {
        name: {"engine": "", "running": True}
        for name in ("write-router", "write-watch", "write-pairs", "door")
    }
    for plan, removed in (
        (planned({**ENGINE, "name": "write"}), ["write-router", "write-watch", "write-pairs"]),
        (planned(), []),
    ):
        known = {
            "plan_processes": processes,
            "site_plan": plan.to_dict(),
            "inventory_hostname": "n1",
        }
        for name, text in tasks[number]["vars"].items():
            known[name] = jinja.from_string(text).render(known)
        assert jinja.compile_expression(tasks[number]["when"])(**known) == bool(removed)
        text = tasks[number]["block"][0]["engine_phase"]["steps"]
        steps = jinja.from_string(text).render(known)
        assert [(one["name"], one["state"]) for one in steps] == [
            (name, "absent") for name in removed
        ]
