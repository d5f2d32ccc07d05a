from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.environment import KEPT_ON_THEIR_HOST
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes
from vllm_ansible.plan.unready import refuse_unready
from vllm_ansible.problem import PlanError


def site_host(name: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "accelerator": "cpu",
        "accelerator_count": 2,
        "address": f"10.0.0.{number}",
        "interface": f"eth{number}",
        "cluster_dir": f"/opt/vllm-ansible/{name}",
        "run_dir": "/run/vllm-c",
        "service_user": "vllm",
        "cores": 4,
        **more,
    }


HOSTS = {"n1": site_host("n1", 1), "n2": site_host("n2", 2)}
ENVIRONMENTS = {name: {"directory": "/opt/e/abc", "fingerprint": "f"} for name in HOSTS}


def planned(*engines: dict[str, Any], accelerator: str = "cpu") -> Plan:
    capacities = [Capacity.whole(name, accelerator, 2) for name in HOSTS]
    return make_plan("c", parse_engines([{"model": "o/m", **e} for e in engines]), capacities)


def processes(plan: Plan, hosts: Any = None, **more: Any) -> dict[str, tuple[ProcessSpec, ...]]:
    models = {
        host: {engine.name: {"path": "/models/m"} for engine in plan.engines} for host in HOSTS
    }
    return wanted_processes(plan, hosts or HOSTS, ENVIRONMENTS, models, **more)


def value(spec: ProcessSpec, flag: str) -> str:
    if flag in spec.argv:
        return spec.argv[spec.argv.index(flag) + 1]
    return next(word.partition("=")[2] for word in spec.argv if word.startswith(f"{flag}="))


SPANNING = {"name": "a", "layout": {"pipeline": 2}}


def test_nothing_starts_where_an_earlier_stage_was_left_out() -> None:
    plan = planned(SPANNING)
    weights = {host: {"a": {"path": "/m"}} for host in HOSTS}
    refuse_unready(plan, ENVIRONMENTS, weights)
    with pytest.raises(PlanError, match=r"start on n2: no complete weights .*--tags weights"):
        refuse_unready(plan, ENVIRONMENTS, {**weights, "n2": {}})
    with pytest.raises(PlanError, match=r"start on n1: no complete environment .*--tags install"):
        refuse_unready(plan, {**ENVIRONMENTS, "n1": {"directory": "/e"}}, weights)


def test_a_spanning_engine_is_a_head_a_server_and_workers() -> None:
    wanted = processes(planned(SPANNING))
    assert [(s.name, s.part) for s in wanted["n1"]] == [("a-ray", "head"), ("a-serve", "serve")]
    assert [(s.name, s.part) for s in wanted["n2"]] == [("a-ray", "worker")]


def test_a_worker_joins_the_head_of_its_own_engine() -> None:
    wanted = processes(planned({"name": "z"}, SPANNING))
    worker = next(s for s in wanted["n2"] if s.engine == "a")
    assert value(worker, "--address") == "10.0.0.1:20100"
    server = next(s for s in wanted["n1"] if s.name == "a-serve")
    assert server.environment["RAY_ADDRESS"] == "10.0.0.1:20100"


def test_each_host_names_its_own_address_and_interface() -> None:
    wanted = processes(planned(SPANNING))
    for name, host in HOSTS.items():
        for spec in wanted[name]:
            assert spec.environment["VLLM_HOST_IP"] == host["address"]
            assert spec.environment["GLOO_SOCKET_IFNAME"] == host["interface"]


def test_what_differs_between_hosts_is_kept_from_travelling() -> None:
    plan = planned(SPANNING, {"name": "b", "layout": {"tensor": 2}, "nodes": 2})
    hosts = {"n1": site_host("n1", 1), "n2": site_host("n2", 2, cores=8, run_dir="/run/v-1")}
    for engine in ("a", "b"):
        one, two = (
            next(s for s in processes(plan, hosts)[host] if s.name == f"{engine}-ray")
            for host in hosts
        )
        differing = {n for n in one.environment if one.environment[n] != two.environment.get(n)}
        assert differing
        assert differing <= set(KEPT_ON_THEIR_HOST)


@pytest.mark.parametrize(
    ("kind", "visible"), [("nvidia", "CUDA_VISIBLE_DEVICES"), ("enflame", "TOPS_VISIBLE_DEVICES")]
)
def test_ray_counts_the_planned_ranks_and_sees_their_devices_only(kind: str, visible: str) -> None:
    plan = planned({"name": "z"}, SPANNING, accelerator=kind)
    hosts = {name: {**host, "accelerator": kind} for name, host in HOSTS.items()}
    ray = {(s.host, s.name): s for specs in processes(plan, hosts).values() for s in specs}
    assert value(ray["n1", "a-ray"], "--num-gpus") == "1"
    assert ray["n1", "z-ray"].environment[visible] == "0"
    assert ray["n1", "a-ray"].environment[visible] == "1"
    assert ray["n2", "a-ray"].environment[visible] == "0"


def test_without_ray_every_host_runs_a_server_and_the_others_are_headless() -> None:
    wanted = processes(planned({**SPANNING, "executor": "mp"}))
    first, second = wanted["n1"][0], wanted["n2"][0]
    assert (first.name, second.name) == ("a-serve", "a-serve")
    assert "--headless" in second.argv
    assert "--headless" not in first.argv
    assert value(second, "--node-rank") == "1"
    assert value(second, "--master-addr") == "10.0.0.1"
    assert "--config" not in second.argv
    assert not any(name.startswith("RAY_") for name in first.environment)


def test_without_ray_one_host_needs_no_meeting_point() -> None:
    wanted = processes(planned({"name": "a", "executor": "mp"}))
    assert "--nnodes" not in wanted["n1"][0].argv
    assert wanted["n2"] == ()


def test_arguments_take_the_forms_the_parser_knows() -> None:
    arguments = {
        "max_model_len": 64,
        "enable_prefix_caching": True,
        "enforce_eager": False,
        "compilation_config": {"level": 0},
        "cudagraph_capture_sizes": [1, 2],
        "seed": None,
    }
    serve = processes(planned({"name": "a", "vllm_args": arguments}))["n1"][1]
    tail = serve.argv[serve.argv.index("--compilation-config") :]
    assert tail == (
        *("--compilation-config", '{"level": 0}'),
        *("--cudagraph-capture-sizes", "1", "2"),
        "--enable-prefix-caching",
        "--no-enforce-eager",
        *("--kv-cache-memory-bytes", "536870912"),
        *("--max-model-len", "64"),
    )


@pytest.mark.parametrize("word", ["token", "key", "secret"])
def test_only_paths_name_secrets(word: str) -> None:
    for specs in processes(planned(SPANNING)).values():
        for spec in specs:
            for text in (*spec.argv, *spec.environment.values()):
                # What remains with such a word in it is the path of a file, or RAY_AUTH_MODE.
                assert word not in text or text.startswith("/") or text == "token"


def test_what_an_engine_depends_on_changes_its_server_only() -> None:
    plan = planned(SPANNING)
    before, after = processes(plan), processes(plan, fingerprints={"a": {"api_key": "x"}})
    assert before["n1"][0].digest == after["n1"][0].digest
    assert before["n1"][1].digest != after["n1"][1].digest


def test_an_engine_that_is_left_out_is_left_alone_and_a_split_one_is_refused() -> None:
    assert processes(planned({"name": "a", "hosts": ["n1"]}), {"n2": HOSTS["n2"]}) == {"n2": ()}
    with pytest.raises(PlanError, match="leaves out n1"):
        processes(planned(SPANNING), {"n2": HOSTS["n2"]})


def test_ranks_of_a_host_share_its_cores_but_one() -> None:
    hosts = {"n1": site_host("n1", 1, cores=9), "n2": site_host("n2", 2, cores=2)}
    found = processes(planned(SPANNING), hosts)
    assert found["n1"][1].environment["OMP_NUM_THREADS"] == "4"
    assert found["n2"][0].environment["OMP_NUM_THREADS"] == "1"
    server = found["n1"][1]
    assert server.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_a_cluster_of_one_machine_stays_on_loopback() -> None:
    alone = {"n1": site_host("n1", 1, address="127.0.0.1", interface="lo")}
    plan = planned({"name": "a", "hosts": ["n1"]})
    for spec in processes(plan, alone)["n1"]:
        assert spec.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    for spec in processes(plan)["n1"]:
        assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in spec.environment


def test_no_port_of_ray_is_left_to_its_defaults() -> None:
    wanted = processes(planned({"name": "z"}, {"name": "a"}))["n1"]
    heads = {spec.engine: spec.environment for spec in wanted if spec.part == "head"}
    for engine, block in (("z", 20000), ("a", 20100)):
        assert heads[engine]["AUTOSCALER_METRIC_PORT"] == str(block + 10)
        assert heads[engine]["DASHBOARD_METRIC_PORT"] == str(block + 11)


def test_an_engine_in_an_image_is_shown_its_weights_and_no_other_one_is() -> None:
    plan = planned({**SPANNING, "executor": "ray"})
    models = {host: {"a": {"path": "/models/m"}} for host in HOSTS}
    of_image = {name: {**one, "apptainer": "/i.sif"} for name, one in ENVIRONMENTS.items()}
    for environments, shown in ((of_image, "/models/m"), (ENVIRONMENTS, None)):
        found = wanted_processes(plan, HOSTS, environments, models)
        specs = [spec for specs in found.values() for spec in specs]
        assert {spec.part for spec in specs} == {"head", "worker", "serve"}
        assert {spec.environment.get("ENGINE_BIND") for spec in specs} == {shown}
