"""What holds for any model on any machines: more is never worse, and nothing is promised twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ansible.accelerators.accelerator import accelerators
from vllm_ansible.accelerators.machines import Machines, machines
from vllm_ansible.plan.estimate.layouts.answer import Answer, NoLayout, answer
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.several import share

MODELS = st.sampled_from(["r1", "r1-awq", "llama-8b", "llama-70b", "qwen3-235b"])
KINDS = st.sampled_from(sorted(set(accelerators()) - {"cpu"}))
GROUPS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 4, 8]), KINDS), min_size=1, max_size=3
)
LOADS = st.sampled_from([1, 16, 256])
FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def line(groups: list[tuple[int, int, str]]) -> str:
    return " + ".join(f"{nodes}x{devices} {kind}" for nodes, devices, kind in groups)


def with_more_memory(there: Machines, factor: float) -> Machines:
    nodes = tuple(
        replace(
            node,
            accelerator=replace(
                node.accelerator, memory_bytes=int(node.accelerator.memory_bytes * factor)
            ),
        )
        for node in there.nodes
    )
    return replace(there, nodes=nodes)


def taken(plans: list[Answer]) -> list[tuple[str, int]]:
    return [(seat.node, seat.device) for one in plans for seat in one.seats()]


@FEW
@given(name=MODELS, kind=KINDS, devices=st.sampled_from([1, 2, 8]), factor=st.floats(1.0, 3.0))
def test_more_memory_never_fits_less(
    ask: Any, name: str, kind: str, devices: int, factor: float
) -> None:
    """Steps are kept as they are: larger devices get larger ones by default, which take memory."""
    asked = ask(name, f"1x{devices} {kind}")
    judge, roomier = (
        Judge(replace(asked, machines=there))
        for there in (asked.machines, with_more_memory(asked.machines, factor))
    )
    for one in judge.all():
        if not one.accepted or one.budget is None:
            continue
        more = roomier.verdict(one.candidate)
        assert more.budget is not None
        same_step = one.budget.stages[0].overhead == more.budget.stages[0].overhead
        assert more.accepted or not same_step
        if same_step:
            assert more.budget.kv_tokens[1] >= one.budget.kv_tokens[1]


@FEW
@given(name=MODELS, kind=KINDS, nodes=st.integers(2, 3), load=LOADS, factor=st.floats(1.0, 8.0))
def test_a_faster_link_never_slows(
    ask: Any, name: str, kind: str, nodes: int, load: int, factor: float
) -> None:
    asked = ask(name, f"{nodes}x4 {kind} @ 4x100Gb", concurrency=load)
    fabric = asked.machines.fabric
    faster = replace(fabric, node_rate=fabric.node_rate * factor)
    inside = tuple(
        replace(
            node,
            accelerator=replace(node.accelerator, link=int(node.accelerator.link * factor)),
        )
        for node in asked.machines.nodes
    )
    wired = Judge(replace(asked, machines=replace(asked.machines, fabric=faster)))
    linked = Judge(replace(asked, machines=replace(asked.machines, nodes=inside)))
    for one in Judge(asked).all():
        if not one.accepted:
            continue
        for other in (wired, linked):
            assert other.verdict(one.candidate).output_rate >= one.output_rate * (1 - 1e-9)


@FEW
@given(name=MODELS, groups=GROUPS, load=LOADS)
def test_no_plan_crosses_makers_or_uses_a_device_twice(
    ask: Any, name: str, groups: list[tuple[int, int, str]], load: int
) -> None:
    there = machines(line(groups))
    try:
        found = answer(ask(name, line(groups), concurrency=load))
    except NoLayout:
        return
    devices = {node.name: node for node in there.nodes}
    places = taken([found])
    assert len(places) == len(set(places))
    assert len(places) == found.chosen.candidate.ranks * found.chosen.candidate.replicas
    assert all(device < devices[node].devices for node, device in places)
    assert len({devices[node].accelerator.kind for node, _ in places}) == 1


@FEW
@given(names=st.lists(MODELS, min_size=2, max_size=3), groups=GROUPS)
def test_several_models_use_no_device_twice(
    ask: Any, names: list[str], groups: list[tuple[int, int, str]]
) -> None:
    try:
        plans = share([ask(name, line(groups)) for name in names])
    except NoLayout:
        return
    places = taken(list(plans))
    assert len(plans) == len(names)
    assert len(places) == len(set(places))
