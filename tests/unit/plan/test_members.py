"""One entry of `layout: auto` that becomes several engines, and what stays of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan import views
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import NoLayout
from vllm_ansible.plan.estimate.layouts.candidate import MOST_DATA
from vllm_ansible.plan.estimate.layouts.engine_set import built, engine_set, unbuilt
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.set_table import entries
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.ports import WORKERS
from vllm_ansible.plan.processes import wanted_processes
from vllm_ansible.plan.sticky import plan_of_some_hosts
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.reach.purposes import by_engine

from .estimate.layouts.conftest import SHAPES
from .estimate.layouts.test_engine_set import GROUPS
from .test_processes import site_host

MIXED = "4x8 H200 + 2x8 H100-80"
LINES = [
    ("r1", MIXED),
    ("r1", "1x8 H200 + 1x8 MI300X"),
    ("r1", "3x8 H200"),
    ("r1", "2x8 H100-80"),
    ("qwen3-235b", "1x8 A100-80 + 3x4 H100-80"),
    ("qwen3-235b", "1x8 H200 + 2x4 H200"),
    ("llama-70b", "1x8 H100-80 + 1x7 H100-80"),
    ("llama-8b", "2x8 H200 + 4x8 L40S"),
    ("llama-8b", "1x5 H100-80 + 1x8 MI300X"),
    ("llama-8b", "16x8 H100-80"),
    # Those whose lengths differ, and which are given one.
    ("llama-70b", "1x8 H200 + 1x2 H100-80"),
    ("llama-8b", "1x8 H200 + 1x1 RTX-4090"),
]


def model(name: str) -> Model:
    return understand(Settings(SHAPES[name], "config.json"), name)


def hosts(line: str) -> list[Capacity]:
    return [
        Capacity.whole(node.name, node.accelerator.kind, node.devices, node.accelerator)
        for node in machines(line).nodes
    ]


def plan(
    name: str, there: Sequence[Capacity], kept: Plan | None = None, fill: bool = True, **entry: Any
) -> Plan:
    wanted = parse_engines([{"name": "chat", "model": "org/model", **entry}])
    return make_plan("c", wanted, there, kept, terms=Terms({"chat": model(name)}, fill=fill))


def told(engine: PlannedEngine) -> tuple[object, ...]:
    ranks = [(rank.host, rank.device) for rank in engine.ranks]
    return engine.layout, engine.executor, ranks, engine.arguments


@pytest.mark.parametrize(("name", "line"), LINES)
def test_auto_builds_the_engines_that_the_verb_lists(name: str, line: str) -> None:
    """Devices, split and arguments of each: what is printed, written down, is what auto is."""
    found = engine_set(Request(model(name), machines(line)))
    listed = list(entries(found))
    models = {entry["name"]: model(name) for entry in listed}
    written = make_plan("c", parse_engines(listed), hosts(line), terms=Terms(models))
    auto = plan(name, hosts(line))
    assert [told(one) for one in auto.engines] == [told(one) for one in written.engines]
    assert [one.devices for one in built(found)] == [
        tuple((rank.host, rank.device) for rank in one.ranks) for one in auto.engines
    ]


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(["r1", "llama-8b", "llama-70b", "qwen3-235b"]), groups=GROUPS)
def test_no_device_is_used_twice_and_the_next_run_changes_nothing(
    name: str, groups: list[tuple[int, int, str]]
) -> None:
    line = " + ".join(f"{nodes}x{devices} {kind}" for nodes, devices, kind in groups)
    there = hosts(line)
    try:
        found = engine_set(Request(model(name), machines(line)))
    except NoLayout:
        with pytest.raises(PlanError):
            plan(name, there)
        return
    if all(unbuilt(one) for one in found.members):
        return
    made = plan(name, there)
    ranks = [(rank.host, rank.device) for one in made.engines for rank in one.ranks]
    assert len(set(ranks)) == len(ranks)
    assert ranks == [device for one in built(found) for device in one.devices]
    # What is printed, written down, is the same engines: split, devices and arguments.
    listed = list(entries(found))
    models = {entry["name"]: model(name) for entry in listed}
    written = make_plan("c", parse_engines(listed), there, terms=Terms(models))
    assert [told(one) for one in made.engines] == [told(one) for one in written.engines]
    kinds = {host.host: host.accelerator for host in there}
    assert all(len({kinds[host] for host in one.hosts}) == 1 for one in made.engines)
    kept = Plan.from_dict(made.to_dict())
    assert kept == made
    assert plan(name, there, kept).digest == made.digest


def test_one_entry_is_five_engines_of_one_name_behind_the_door() -> None:
    """Two nodes of H100 stayed idle beside four of H200, of which one had an engine."""
    made = plan("r1", hosts(MIXED), port=8100)
    assert [one.name for one in made.engines] == ["chat", *(f"chat-{n}" for n in range(2, 6))]
    assert {one.served_name for one in made.engines} == {"org/model"}
    assert {one.entry for one in made.engines} == {"chat"}
    assert [one.ports.api for one in made.engines] == [8100, 8001, 8002, 8003, 8004]
    assert len({rank.host for one in made.engines for rank in one.ranks}) == 6
    assert "one of 5 engines that serve chat" in made.engines[0].reasons
    # Each is measured at its own part of the load.
    loads = [one.estimate["concurrency"] for one in made.engines]
    assert all(1 <= load < 64 for load in loads) and 60 <= sum(loads) <= 68


def test_all_engines_of_a_set_take_requests_of_one_length() -> None:
    """The door sends a request to any of them, and the smaller one refused what the other takes."""
    made = plan("llama-70b", hosts("1x8 H200 + 1x2 H100-80"))
    lengths = {
        one.arguments[one.arguments.index("--max-model-len") + 1]
        for one in made.engines
        if "--max-model-len" in one.arguments
    }
    assert len(made.engines) > 1
    assert len(lengths) == 1
    assert all("--max-model-len" in one.arguments for one in made.engines)


def test_a_lost_host_takes_its_engine_alone_and_gets_it_back_under_its_name() -> None:
    made = plan("r1", hosts("3x8 H200 + 2x8 H100-80"))
    without = [host for host in hosts("3x8 H200 + 2x8 H100-80") if host.host != "node-2"]
    less = plan("r1", without, made)
    lost = [one for one in made.engines if one.hosts == ("node-2",)]
    assert len(lost) == 1
    assert less.engines == tuple(one for one in made.engines if one not in lost)
    again = plan("r1", hosts("3x8 H200 + 2x8 H100-80"), less)
    assert {one.name: told(one) for one in again.engines} == {
        one.name: told(one) for one in made.engines
    }
    assert {one.name: one.ports for one in again.engines} == {
        one.name: one.ports for one in made.engines
    }


def test_a_host_that_is_added_gets_an_engine_and_moves_none() -> None:
    one = plan("r1", hosts("1x8 H200"))
    two = plan("r1", hosts("1x8 H200 + 2x8 H100-80"), one)
    assert two.engines[0] == one.engines[0]
    assert [engine.hosts for engine in two.engines[1:]] == [("node-2", "node-3")]


def test_idle_devices_are_named_and_left_alone_unless_they_are_to_be_used() -> None:
    one = plan("r1", hosts("1x8 H200"))
    same = plan("r1", hosts("1x8 H200 + 2x8 H100-80"), one, fill=False)
    assert same.engines == one.engines
    assert same.warnings == (
        "engine chat: 1 more would fit on 16 idle devices of node-2, node-3; "
        "-e plan_fill=true starts them",
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [("1x8 H200", "1x8 H200 + 1x2 H100-80"), ("1x2 H100-80", "1x2 H100-80 + 1x8 H200")],
)
def test_an_engine_beside_one_that_serves_takes_requests_of_its_length(
    first: str, then: str
) -> None:
    one = plan("llama-70b", hosts(first))
    more = plan("llama-70b", hosts(then), one)
    assert more.engines[: len(one.engines)] == one.engines
    lengths = {
        engine.arguments[engine.arguments.index("--max-model-len") + 1]
        if "--max-model-len" in engine.arguments
        else ""
        for engine in more.engines
    }
    assert len(lengths) == 1


def test_hosts_of_the_entry_are_the_only_ones() -> None:
    made = plan("r1", hosts(MIXED), hosts=["node-5", "node-2", "node-6"])
    assert {host for one in made.engines for host in one.hosts} == {"node-2", "node-5", "node-6"}


@pytest.mark.parametrize(
    "entry", [{"executor": "ray"}, {"nodes": 1}, {"layout": {"tensor": 8}}], ids=str
)
def test_what_is_of_one_engine_makes_one(entry: dict[str, Any]) -> None:
    assert len(plan("r1", hosts("2x8 H200"), **entry).engines) == 1


def test_a_second_entry_leaves_a_set_that_serves_alone() -> None:
    made = plan("r1", hosts("2x8 H200 + 1x8 H100-80"))
    free = [*hosts("2x8 H200 + 1x8 H100-80"), replace(hosts("1x8 H200")[0], host="node-9")]
    wanted = parse_engines(
        [{"name": "chat", "model": "org/model"}, {"name": "other", "model": "org/small"}]
    )
    models = {"chat": model("r1"), "other": model("llama-8b")}
    both = make_plan("c", wanted, free, made, terms=Terms(models))
    assert both.engines[: len(made.engines)] == made.engines
    assert both.engine("other") is not None


def test_an_entry_of_the_name_of_a_part_has_the_name() -> None:
    made = plan("r1", hosts(MIXED))
    wanted = parse_engines(
        [{"name": "chat", "model": "org/model"}, {"name": "chat-2", "model": "org/small"}]
    )
    models = {"chat": model("r1"), "chat-2": model("llama-8b")}
    both = make_plan("c", wanted, hosts(MIXED), made, terms=Terms(models))
    second = both.engine("chat-2")
    assert second is not None and second.model == "org/small"
    assert len({one.name for one in both.engines}) == len(both.engines)


def test_a_longest_name_has_room_for_a_number() -> None:
    wanted = parse_engines([{"name": "abcdefghijkl", "model": "org/model"}])
    made = make_plan("c", wanted, hosts(MIXED), terms=Terms({"abcdefghijkl": model("r1")}))
    assert [one.name for one in made.engines][:2] == ["abcdefghijkl", "abcdefghij-2"]


def test_a_run_over_some_hosts_knows_the_parts() -> None:
    made = plan("r1", hosts(MIXED))
    wanted = parse_engines([{"name": "chat", "model": "org/model"}])
    assert plan_of_some_hosts(wanted, made, ["node-1"]).engines == made.engines
    other = parse_engines([{"name": "chat", "model": "org/other"}])
    with pytest.raises(PlanError, match="chat changed since the kept plan"):
        plan_of_some_hosts(other, made, ["node-1"])


def test_a_part_serves_the_weights_of_its_entry_and_its_ports_are_measured() -> None:
    made = plan("r1", hosts("2x8 H200 + 1x8 MI300X"))
    part = made.engines[-1]
    assert part.part_of == "chat"
    sites = {host: site_host(host, n, accelerator="nvidia") for n, host in enumerate(part.hosts)}
    environment = {"directory": "/opt/e", "fingerprint": "f", "versions": {"vllm": "0.32.0"}}
    weights = {"path": "/models/r1", "fingerprint": "w", "experts": 256, "hidden_size": 7168}
    wanted = wanted_processes(
        replace(made, engines=(part,)),
        sites,
        dict.fromkeys(sites, environment),
        {host: {"chat": weights} for host in sites},
    )
    assert any("/models/r1" in spec.argv for specs in wanted.values() for spec in specs)
    planned = [part.to_dict()]
    assert views.parser_arguments(planned, part.hosts[0], {"chat": "/models/r1"})
    asked = [{"name": "chat", "model": "org/model"}]
    measured = by_engine(asked, 20000, made.to_dict())
    assert {part.ports.gcs} <= {port for ports in measured for port in ports}


def test_an_engine_of_one_entry_has_as_many_data_ranks_as_ports() -> None:
    assert MOST_DATA == WORKERS
    made = plan("llama-8b", hosts("16x8 H100-80"))
    assert sum(one.layout.data for one in made.engines) * made.engines[0].layout.tensor == 128
    assert max(one.layout.data for one in made.engines) <= WORKERS


def test_an_engine_is_on_the_devices_that_were_planned() -> None:
    """The first host with room got the engine that was planned for another accelerator."""
    made = plan("r1", hosts("1x8 A100-40 + 1x8 H200"))
    assert [one.hosts for one in made.engines] == [("node-2",)]
    assert accelerator("H200").name == made.engines[0].estimate["accelerator"]
