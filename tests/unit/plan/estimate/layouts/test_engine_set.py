"""Sets of engines over machines that differ, and what the stage `plan` makes of what is printed."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ansible.accelerators.accelerator import accelerators
from vllm_ansible.accelerators.machines import Machines
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.layouts.answer import NoLayout, answer
from vllm_ansible.plan.estimate.layouts.command import NO_LAYOUT, OK, main
from vllm_ansible.plan.estimate.layouts.engine_set import EngineSet, engine_set, unbuilt
from vllm_ansible.plan.estimate.layouts.set_table import entries, set_lines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan

KINDS = sorted(set(accelerators()) - {"cpu"})
GROUPS = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([1, 2, 4, 7, 8]), st.sampled_from(KINDS)),
    min_size=1,
    max_size=3,
)


def layouts(found: EngineSet) -> list[str]:
    return [one.answer.chosen.candidate.name for one in found.members]


def used(found: EngineSet) -> list[tuple[str, int]]:
    return [device for one in found.members for device in one.devices()]


def staged(found: EngineSet) -> Plan:
    """Return what the stage `plan` makes of the printed engines, on the same machines."""
    listed = list(entries(found))
    there = [
        Capacity.whole(node.name, node.accelerator.kind, node.devices, node.accelerator)
        for node in found.request.machines.nodes
    ]
    models = {entry["name"]: found.request.model for entry in listed}
    return make_plan("c", parse_engines(listed), there, terms=Terms(models))


def test_each_kind_of_node_has_engines_of_its_own(ask: Any) -> None:
    """One engine over 4x8 H200 + 2x8 H100 left 24 of 48 devices idle."""
    found = engine_set(ask("r1", "4x8 H200 + 2x8 H100-80"))
    assert layouts(found) == ["4 x TP8", "TP8 PP2"]
    assert found.devices == 48 and not found.idle
    assert sum(one.answer.request.concurrency for one in found.members) == 64
    assert found.output_rate.middle > answer(ask("r1", "4x8 H200")).chosen.output_rate


def test_two_makers_serve_beside_each_other(ask: Any) -> None:
    found = engine_set(ask("r1", "1x8 H200 + 1x8 MI300X"))
    assert [name.split()[0] for name in layouts(found)] == ["TP8", "TP8"]
    for one in found.members:
        assert len({piece.node.accelerator.kind for piece in one.pieces}) == 1


def test_what_is_left_of_a_node_has_a_smaller_engine(ask: Any) -> None:
    found = engine_set(ask("llama-70b", "1x6 H100-80"))
    assert found.devices == 6
    assert used(found) == [("node-1", number) for number in range(6)]


def test_what_holds_no_engine_by_itself_is_named_with_its_reason(ask: Any) -> None:
    found = engine_set(ask("r1", "1x8 H100-80 + 1x8 H200"))
    ((piece, why),) = found.idle
    assert (piece.node.name, piece.first, piece.node.devices) == ("node-1", 0, 8)
    assert "has no layout on 1x8 H100-80" in why
    assert set_lines(found)[-1].startswith(
        "  idle  8 x H100-80 on node-1 devices 0 to 7: r1 has no"
    )


def test_nodes_that_hold_the_model_only_together_have_one_engine(ask: Any) -> None:
    found = engine_set(ask("r1", "1x8 H100-80 + 1x8 A100-80"))
    assert layouts(found) == ["TP8 PP2"]
    assert not list(entries(found))


def test_what_the_stage_does_not_build_is_in_no_list_and_said(ask: Any) -> None:
    found = engine_set(ask("r1", "1x8 H100-80 + 1x8 A100-80", concurrency=1))
    assert [unbuilt(one) for one in found.members] == ["no engine over nodes that differ"]
    assert not list(entries(found))
    assert any("The stage plan builds no engine over nodes" in line for line in set_lines(found))


@pytest.mark.parametrize("line", ["2x4 H200 + 2x2 H20-141", "2x4 H200", "1x8 H200 + 2x4 H200"])
@pytest.mark.parametrize("load", [1, 64])
def test_nodes_have_as_many_ranks_of_an_engine(ask: Any, line: str, load: int) -> None:
    """Six ranks over two nodes of four were chosen, which the stage does not build."""
    found = engine_set(ask("r1", line, concurrency=load))
    assert not [one for one in found.members if unbuilt(one)]
    assert len(list(entries(found))) >= 1


def test_machines_of_one_kind_are_planned_as_before(ask: Any) -> None:
    for line in ("2x8 H100-80", "1x8 H200", "16x1 GH200-96 @ 400Gb"):
        request = ask("r1", line)
        (one,) = engine_set(request).members
        assert one.answer == answer(request)


def test_one_engine_is_taken_in_place_of_several_where_it_is_as_good(ask: Any) -> None:
    """It has one address by itself; the stage built it where the verb printed two engines."""
    request = ask("r1", "2x8 H200")
    several = answer(request).chosen
    (one,) = engine_set(request).members
    assert several.candidate.name == "2 x TP8 EP8"
    assert one.answer.chosen.candidate.name == "TP8 DP2 EP16"
    assert one.answer.chosen.output_rate >= 0.85 * several.output_rate
    why = {other.candidate.name: words for other, words in one.answer.others}
    assert "it takes 2 engines behind one door" in why["2 x TP8 EP8"]
    # For one request, two engines are no faster than one, and ranks in step are slower.
    assert layouts(engine_set(ask("r1", "2x8 H200", objective="latency"))) != ["TP8 DP2 EP16"]


def test_where_nothing_fits_the_refusal_is_that_of_the_whole(ask: Any) -> None:
    with pytest.raises(NoLayout, match=r"1x4 H100-80 .*1x2 MI300X"):
        engine_set(ask("r1", "1x4 H100-80 + 1x2 MI300X"))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("r1", "4x8 H200 + 2x8 H100-80"),
        ("r1", "1x8 H200 + 1x8 MI300X"),
        ("r1", "2x8 H200"),
        ("qwen3-235b", "1x8 A100-80 + 3x4 H100-80"),
        ("qwen3-235b", "1x8 H200 + 2x4 H200"),
        ("llama-70b", "1x8 H100-80 + 1x7 H100-80"),
        ("llama-8b", "2x8 H200 + 4x8 L40S"),
        ("llama-8b", "1x5 H100-80 + 1x8 MI300X"),
    ],
)
def test_the_stage_builds_exactly_the_set_that_is_printed(ask: Any, name: str, line: str) -> None:
    """The same devices and the same split for every engine, through the stage's own planner."""
    found = engine_set(ask(name, line))
    plan = staged(found)
    built = [(rank.host, rank.device) for engine in plan.engines for rank in engine.ranks]
    assert built == used(found)
    wanted = [
        (one.answer.chosen.candidate.tensor, one.answer.chosen.candidate.pipeline)
        for one in found.members
    ]
    assert {(one.layout.tensor, one.layout.pipeline) for one in plan.engines} == set(wanted)


def test_the_command_prints_engines_as_an_inventory_lists_them(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "4x8 H200 + 2x8 H100-80"]) == OK
    told = capsys.readouterr().out
    assert "48 of 48 devices" in told
    text = told[told.index("  engines:") : told.index("\non node-1")]
    read = yaml.safe_load(text)["engines"]
    assert len(read) == 5 and read[-1]["layout"] == {"tensor": 8, "pipeline": 2}
    parse_engines(read)
    assert main([config, "4x8 H200 + 2x8 H100-80", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["engines"] == read
    assert len(found["members"]) == 2 and found["idle"] == []
    assert main([config, "1x4 H100-80 + 1x2 MI300X"]) == NO_LAYOUT


def test_a_picture_shows_every_engine_and_what_is_free(config: str, tmp_path: Any) -> None:
    path = tmp_path / "plan.svg"
    assert main([config, "1x8 H200 + 1x8 H100-80 + 1x8 MI300X", "--svg", str(path)]) == OK
    page = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 our own
    words = [one.text for one in page.iter() if one.text]
    assert words.count("free") == 8
    assert "2.7" in words


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(["r1", "llama-8b", "llama-70b", "qwen3-235b"]),
    groups=GROUPS,
    load=st.sampled_from([1, 16, 256]),
)
def test_no_set_uses_a_device_twice_or_spans_makers(
    ask: Any, name: str, groups: list[tuple[int, int, str]], load: int
) -> None:
    line = " + ".join(f"{nodes}x{devices} {kind}" for nodes, devices, kind in groups)
    request = ask(name, line, concurrency=load)
    try:
        found = engine_set(request)
    except NoLayout:
        return
    there: Machines = request.machines
    all_ = {(node.name, number) for node in there.nodes for number in range(node.devices)}
    kinds = {node.name: node.accelerator.kind for node in there.nodes}
    free = [
        (piece.node.name, piece.first + number)
        for piece, _ in found.idle
        for number in range(piece.node.devices)
    ]
    assert sorted([*used(found), *free]) == sorted(all_)
    for one in found.members:
        assert len({kinds[node] for node, _ in one.devices()}) == 1
    assert all(why for _, why in found.idle)
    built = [one for one in found.members if not unbuilt(one)]
    assert bool(list(entries(found))) == bool(built)
    if built:
        ranks = [rank for engine in staged(found).engines for rank in engine.ranks]
        assert [(rank.host, rank.device) for rank in ranks] == [
            device for one in built for device in one.devices()
        ]
