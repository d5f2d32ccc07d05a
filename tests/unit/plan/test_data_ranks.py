"""Data-parallel ranks planned: which devices, ports, commands and environment each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vllm_ansible.plan import views
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes
from vllm_ansible.plan.servers import listed
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

from .test_processes import site_host, value

EXPERTS = {"path": "/models/m", "experts": 256, "hidden_size": 7168}
DENSE = {"path": "/models/m", "experts": 0, "hidden_size": 7168}
# The system of the vendor's guide: four hosts of eight devices, eight ranks of four.
GUIDE = {
    "name": "r1",
    "layout": {"data": 8, "tensor": 4},
    "vllm_args": {"max_model_len": 2048},
}
PINNED = "0.9.2+gcu"


def hosts(*counts: int, kind: str = "cpu") -> list[Capacity]:
    return [Capacity.whole(f"n{i}", kind, count) for i, count in enumerate(counts, 1)]


def plan(*engines: dict[str, Any], on: list[Capacity], kept: Plan | None = None) -> Plan:
    wanted = parse_engines([{"model": "o/m", **engine} for engine in engines])
    return make_plan("c", wanted, on, kept)


def first(made: Plan) -> PlannedEngine:
    return made.engines[0]


def places(engine: PlannedEngine) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.host, one.devices) for one in engine.servers()]


def refusal(*engines: dict[str, Any], on: list[Capacity]) -> Any:
    with pytest.raises(PlanError) as refused:
        plan(*engines, on=on)
    (problem,) = refused.value.problems
    return problem


def processes(
    made: Plan,
    model: Mapping[str, Any] = EXPERTS,
    accelerator: str = "nvidia",
    version: str = "0.32.0",
) -> dict[str, tuple[ProcessSpec, ...]]:
    names = {host for engine in made.engines for host in engine.hosts}
    sites = {
        name: site_host(name, int(name[1:]), accelerator=accelerator) for name in sorted(names)
    }
    environment = {"directory": "/opt/e", "fingerprint": "f", "versions": {"vllm": version}}
    models = {name: {engine.name: model for engine in made.engines} for name in sites}
    return wanted_processes(made, sites, dict.fromkeys(sites, environment), models)


def specs(made: Plan, *given: Any, **more: Any) -> list[ProcessSpec]:
    return [spec for host in processes(made, *given, **more).values() for spec in host]


def test_the_vendors_guide_is_two_ranks_of_four_devices_on_each_of_four_hosts() -> None:
    engine = first(plan(GUIDE, on=hosts(8, 8, 8, 8, kind="enflame")))
    assert places(engine) == [
        (host, devices)
        for host in ("n1", "n2", "n3", "n4")
        for devices in ((0, 1, 2, 3), (4, 5, 6, 7))
    ]
    assert [one.name for one in engine.servers()] == [f"r1-serve-{rank}" for rank in range(8)]
    assert len({one.port for one in engine.servers()}) == 8
    assert engine.ports.api not in {one.port for one in engine.servers()}


@pytest.mark.parametrize(
    ("more", "counts", "expected"),
    [
        ({}, (2, 2), [("n1", (0,)), ("n1", (1,))]),
        ({}, (1, 1), [("n1", (0,)), ("n2", (0,))]),
        ({"nodes": 2}, (2, 2), [("n1", (0,)), ("n2", (0,))]),
        ({"hosts": ["n2", "n1"]}, (2, 2), [("n2", (0,)), ("n1", (0,))]),
        ({"layout": {"data": 3}}, (2, 2), [("n1", (0,)), ("n1", (1,)), ("n2", (0,))]),
        (
            {"layout": {"data": 2, "tensor": 2}},
            (3, 1, 2),
            [("n1", (0, 1)), ("n3", (0, 1))],
        ),
    ],
)
def test_a_rank_lies_within_one_host(
    more: dict[str, Any], counts: tuple[int, ...], expected: list[Any]
) -> None:
    engine = {"name": "a", "layout": {"data": 2}, **more}
    assert places(first(plan(engine, on=hosts(*counts)))) == expected


@pytest.mark.parametrize(
    ("more", "counts", "words"),
    [
        ({"layout": {"data": 2, "tensor": 2}}, (3, 1), "free are: n1 3 of 3, n2 1 of 1"),
        ({"layout": {"data": 2, "tensor": 4}}, (2, 2), "those of a rank on one host"),
        ({"layout": {"data": 3}, "nodes": 2}, (4, 4), "2 hosts cannot share evenly"),
        ({"layout": {"data": 3}, "hosts": ["n1", "n2"]}, (4, 4), "cannot share evenly"),
        ({"layout": {"data": 4}, "nodes": 2}, (3, 1), "2 ranks on each of its hosts"),
        ({"executor": "dp"}, (4,), "their number is not given"),
    ],
)
def test_ranks_without_room_are_refused_with_every_number(
    more: dict[str, Any], counts: tuple[int, ...], words: str
) -> None:
    problem = refusal({"name": "a", **more}, on=hosts(*counts))
    assert words in problem.message
    assert problem.expected
    assert problem.found
    assert problem.fix


def test_devices_of_two_kinds_are_not_mixed() -> None:
    mixed = [Capacity.whole("n1", "cpu", 1), *hosts(0, 2, kind="nvidia")[1:]]
    engine = first(plan({"name": "a", "layout": {"data": 2}}, on=mixed))
    assert places(engine) == [("n2", (0,)), ("n2", (1,))]


def test_ranks_take_no_device_of_another_engine() -> None:
    made = plan({"name": "a"}, {"name": "b", "layout": {"data": 3}}, on=hosts(2, 2))
    assert places(made.engines[1]) == [("n1", (1,)), ("n2", (0,)), ("n2", (1,))]


def test_an_engine_that_is_asked_for_as_before_stays_and_its_plan_survives_a_file() -> None:
    engine = {"name": "a", "layout": {"data": 2}}
    before = plan(engine, on=hosts(1, 1))
    kept = Plan.from_dict(before.to_dict())
    assert kept == before
    after = plan(engine, on=hosts(2, 2), kept=kept)
    assert after.digest == before.digest
    assert first(after).layout == Layout(1, 1, 2)
    assert "DP2 TP1 on n1, n2 (dp, ports 20020 to 20021)" in after.summary()


def test_a_port_of_a_rank_that_another_engine_has_is_named() -> None:
    problem = refusal(
        {"name": "a", "layout": {"data": 2}}, {"name": "b", "port": 20021}, on=hosts(3)
    )
    assert "both listen on port 20021 of n1" in problem.message


def test_a_kept_plan_in_which_two_ranks_have_one_device_is_refused() -> None:
    engine = {"name": "a", "layout": {"data": 2}}
    written = plan(engine, on=hosts(2)).to_dict()
    written["engines"][0]["ranks"][1]["device"] = 0
    with pytest.raises(PlanError, match=r"a rank 0 and a rank 1 both have device 0 of n1"):
        plan(engine, on=hosts(2), kept=Plan.from_dict(written))


def test_ranks_that_share_experts_meet_at_the_first_ones_host() -> None:
    made = plan({"name": "a", "layout": {"data": 2, "tensor": 2}}, on=hosts(2, 2, kind="nvidia"))
    ranks = specs(made)
    assert [(spec.host, spec.name, spec.part) for spec in ranks] == [
        ("n1", "a-serve-0", "serve"),
        ("n2", "a-serve-1", "serve"),
    ]
    for number, spec in enumerate(ranks):
        assert value(spec, "--data-parallel-rank") == str(number)
        assert value(spec, "--data-parallel-size") == "2"
        assert value(spec, "--data-parallel-address") == "10.0.0.1"
        assert value(spec, "--data-parallel-rpc-port") == str(first(made).ports.data_master)
        assert value(spec, "--host") == f"10.0.0.{number + 1}"
        assert value(spec, "--port") == str(20020 + number)
        assert value(spec, "--tensor-parallel-size") == "2"
        assert value(spec, "--distributed-executor-backend") == "mp"
        assert "--enable-expert-parallel" in spec.argv
        assert spec.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert spec.environment["GLOO_SOCKET_IFNAME"] == f"eth{number + 1}"
        assert not spec.alone
        assert not {name for name in spec.environment if name.startswith(("VLLM_DP", "ECCL"))}
        assert not {"VLLM_USE_V1", "TOPS_VISIBLE_DEVICES", "RAY_ADDRESS"} & set(spec.environment)


def test_two_ranks_of_a_host_have_their_own_devices() -> None:
    made = plan({"name": "a", "layout": {"data": 2, "tensor": 2}}, on=hosts(4, kind="nvidia"))
    seen = [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in specs(made)]
    assert seen == ["0,1", "2,3"]


def test_one_card_down_of_four_hosts_leaves_seven_ranks_without_it() -> None:
    seven = Capacity.whole("n2", "enflame", 7, indices=(0, 1, 2, 4, 5, 6, 7))
    four = [*hosts(8, 8, 8, 8, kind="enflame")]
    four[1] = seven
    made = plan({**GUIDE, "layout": {"data": 7, "tensor": 4}}, on=four)
    on_n2 = processes(made, accelerator="enflame")["n2"]
    assert [one.environment["TOPS_VISIBLE_DEVICES"] for one in on_n2] == ["0,1,2,4"]
    assert len(first(made).servers()) == 7


def test_ranks_of_a_dense_model_are_not_told_of_each_other() -> None:
    made = plan({"name": "a", "layout": {"data": 2}}, on=hosts(2))
    for spec in specs(made, DENSE, accelerator="cpu"):
        assert not [word for word in spec.argv if word.startswith("--data-parallel")]
        assert "--enable-expert-parallel" not in spec.argv
        assert spec.alone


@pytest.mark.parametrize("wanted", [True, False])
def test_expert_parallelism_is_the_users_once_decided(wanted: bool) -> None:
    engine = {
        "name": "a",
        "layout": {"data": 2},
        "vllm_args": {"enable_expert_parallel": wanted},
    }
    flag = "--enable-expert-parallel" if wanted else "--no-enable-expert-parallel"
    (one, _) = specs(plan(engine, on=hosts(2)))
    assert [word for word in one.argv if "expert" in word] == [flag]


def test_a_cpu_has_no_expert_parallelism() -> None:
    made = plan({"name": "a", "layout": {"data": 2}}, on=hosts(2))
    assert "--enable-expert-parallel" not in specs(made, accelerator="cpu")[0].argv


def test_enflame_sizes_its_exchange_by_tokens_ranks_and_hidden_size() -> None:
    made = plan(GUIDE, on=hosts(8, 8, 8, 8, kind="enflame"))
    for spec in specs(made, accelerator="enflame", version="0.20.0"):
        # The guide's own arithmetic: 2048 * 8 * (7168 + 16 + 16) * 2.
        assert spec.environment["ECCL_ALLTOALLV_MAXSIZE"] == "235929600"
        assert value(spec, "--max-num-batched-tokens") == "2048"
        assert value(spec, "--data-parallel-size") == "8"
        assert "VLLM_USE_V1" not in spec.environment
    assert specs(made, accelerator="enflame")[1].environment["TOPS_VISIBLE_DEVICES"] == "4,5,6,7"


def test_the_vendors_pinned_release_reads_its_rank_from_the_environment() -> None:
    made = plan(GUIDE, on=hosts(8, 8, 8, 8, kind="enflame"))
    for number, spec in enumerate(specs(made, accelerator="enflame", version=PINNED)):
        environment = spec.environment
        assert environment["VLLM_USE_V1"] == "0"
        assert environment["VLLM_DP_RANK"] == str(number)
        assert environment["VLLM_DP_SIZE"] == "8"
        assert environment["VLLM_DP_MASTER_IP"] == "10.0.0.1"
        assert environment["VLLM_DP_MASTER_PORT"] == str(first(made).ports.data_master)
        assert environment["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
        assert environment["ECCL_ALLTOALLV_MAXSIZE"] == "235929600"
        assert environment["ECCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"]
        assert not [word for word in spec.argv if word.startswith("--data-parallel")]
        assert "--enable-expert-parallel" in spec.argv


def test_what_the_user_sets_comes_last_and_nobody_else_gets_the_vendors_variables() -> None:
    own = {**GUIDE, "environment": {"ECCL_ALLTOALLV_MAXSIZE": "1"}}
    on = hosts(8, 8, 8, 8, kind="enflame")
    (spec, *_) = specs(plan(own, on=on), accelerator="enflame")
    assert spec.environment["ECCL_ALLTOALLV_MAXSIZE"] == "1"
    for accelerator in ("nvidia", "cpu"):
        made = plan(GUIDE, on=hosts(8, 8, 8, 8, kind=accelerator))
        for spec in specs(made, accelerator=accelerator, version=PINNED):
            vendor = ("ECCL", "TOPS", "VLLM_GCU", "VLLM_DP", "VLLM_USE_V1", "TORCH_ECCL")
            assert not {name for name in spec.environment if name.startswith(vendor)}


def test_a_longer_context_is_one_step_on_enflame_and_left_alone_elsewhere() -> None:
    longer = {**GUIDE, "vllm_args": {"max_model_len": 8192}}
    on = hosts(8, 8, 8, 8, kind="enflame")
    (spec, *_) = specs(plan(longer, on=on), accelerator="enflame")
    assert value(spec, "--max-num-batched-tokens") == "8192"
    (spec, *_) = specs(plan(longer, on=hosts(8, 8, 8, 8, kind="nvidia")))
    assert "--max-num-batched-tokens" not in spec.argv


def test_every_host_of_ranks_gets_the_key_and_each_server_is_listed_with_its_question() -> None:
    engines = plan({"name": "a", "layout": {"data": 2}}, on=hosts(1, 1)).to_dict()["engines"]
    for name in ("n1", "n2"):
        assert views.key_files(engines, {"name": name}, "/key") == {"a/key.yaml": "/key"}
    listed_servers = listed(engines)
    assert [(one["name"], one["rank"], one["of"], one["host"]) for one in listed_servers] == [
        ("a-serve-0", 0, 2, "n1"),
        ("a-serve-1", 1, 2, "n2"),
    ]
    assert all(one["probe"] and one["served_name"] for one in listed_servers)
    assert (
        "--distributed-executor-backend=mp"
        in views.parser_arguments(engines, "n1", {"a": "/m"})["a"]
    )


def test_the_ports_of_ranks_are_looked_at_before_they_start() -> None:
    made = plan({"name": "a", "layout": {"data": 2}}, on=hosts(2))
    steps = [spec.to_dict() for spec in specs(made, accelerator="cpu")]
    phases = {"start_heads": [], "start_workers": [], "start_serve": steps}
    decision = {"hosts": {"n1": phases}, "engines": {"a": {"action": "start"}}}
    assert views.starting_ports(decision, "n1", made.to_dict()["engines"]) == {
        "20000": "a-serve-0 (data master)",
        "20020": "a-serve-0 (api)",
        "20021": "a-serve-1 (api)",
    }


def test_ranks_that_do_not_step_by_themselves_are_asked_with_all_others_busy() -> None:
    engines = plan(GUIDE, on=hosts(8, 8, 8, 8, kind="enflame")).to_dict()["engines"]
    sites = [site_host(f"n{i}", i, accelerator="enflame") for i in range(1, 5)]
    first, *_ = listed(engines, sites, PINNED)
    assert len(first["alongside"]) == 7
    assert first["alongside"][:2] == ["http://10.0.0.1:20021", "http://10.0.0.2:20022"]
    assert not any(one["alongside"] for one in listed(engines, sites, "0.20.0"))
    others = [{**site, "accelerator": "nvidia"} for site in sites]
    assert not any(one["alongside"] for one in listed(engines, others, "0.9.2"))
