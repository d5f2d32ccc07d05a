"""Several models on one cluster, and engines for prefill alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import Machines, machines
from vllm_ansible.plan.estimate.layouts.answer import NoLayout
from vllm_ansible.plan.estimate.layouts.command import OK, main
from vllm_ansible.plan.estimate.layouts.several import share, where


def test_each_model_has_nodes_of_its_own_and_none_is_left_over(ask: Any) -> None:
    line = "6x8 H100-80"
    found = share([ask("r1", line), ask("llama-70b", line)])
    nodes = [[node.name for node in one.request.machines.nodes] for one in found]
    assert not set(nodes[0]) & set(nodes[1])
    assert len(nodes[0]) >= 2
    assert sum(map(len, nodes)) == 6


def test_models_share_the_devices_of_a_node_where_nodes_are_few(ask: Any) -> None:
    found = share([ask("llama-8b", "1x8 H200"), ask("llama-70b", "1x8 H200")])
    names = [node.name for one in found for node in one.request.machines.nodes]
    assert names == ["node-1, devices 0 to 3", "node-1, devices 4 to 7"]


def test_models_that_do_not_fit_beside_each_other_are_refused(ask: Any) -> None:
    with pytest.raises(NoLayout, match="does not fit beside the others") as refusal:
        share([ask("r1", "2x8 H100-80"), ask("r1", "2x8 H100-80")])
    assert len(refusal.value.problems) == 1
    with pytest.raises(NoLayout, match="at least a device each"):
        share([ask("llama-8b", "1x1 H200")] * 2)


def test_the_command_plans_several_models(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "4x8 H200", "--also", config]) == OK
    told = capsys.readouterr().out
    assert "on node-1" in told
    assert told.count("why not") == 2
    assert main([config, "4x8 H200", "--also", config, "--json"]) == OK
    assert len(json.loads(capsys.readouterr().out)["engines"]) == 2


def test_prefill_apart_is_told_where_it_brings_much(ask: Any) -> None:
    from vllm_ansible.plan.estimate.layouts.answer import answer

    long = answer(ask("llama-70b", "4x8 H100-80", concurrency=256, input_tokens=8000, context=9000))
    assert any("for prefill and" in note for note in long.notes)
    alone = answer(ask("r1", "2x8 H100-80", concurrency=8))
    assert not any("for prefill and" in note for note in alone.notes)


def test_a_model_gains_no_nodes_that_leave_another_one_without_a_layout(ask: Any) -> None:
    """Qwen3-8B would gain by the node of another maker, and DeepSeek-R1 not fit on what is left."""
    line = "1x8 H100-80 + 1x8 MI300X + 1x8 H100-80"
    found = share([ask("llama-8b", line), ask("r1", line)])
    assert [one.chosen.accepted for one in found] == [True, True]


@pytest.mark.parametrize("tensor", ["12", "16"])
def test_a_group_larger_than_any_node_is_refused_where_nodes_differ(
    config: str, tensor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "1x8 H100-80 + 1x4 H100-80", "--tensor", tensor]) != OK
    assert f"TP{tensor} needs" in capsys.readouterr().err


def test_a_node_of_another_maker_is_left_to_the_next_model(ask: Any) -> None:
    """DeepSeek-R1 does not fit the first node; the second one is of another maker."""
    found = share([ask(name, "1x8 H100-80 + 1x8 MI300X") for name in ("r1", "llama-8b")])
    assert [one.seats()[0].node for one in found] == ["node-2", "node-1"]


def test_the_first_model_takes_no_node_without_which_another_has_no_layout(ask: Any) -> None:
    """Llama-8B is fastest on the only node that holds DeepSeek-R1."""
    found = share([ask(name, "1x8 MI300X + 1x4 H100-80") for name in ("llama-8b", "r1")])
    assert [one.seats()[0].node for one in found] == ["node-2", "node-1"]


def test_nodes_are_named_by_the_ends_of_their_runs() -> None:
    whole = machines("5x8 H200")
    part = Machines(tuple(whole.nodes[place] for place in (0, 2, 3, 4)), whole.fabric)
    assert where(part, whole) == "node-1, node-3 to node-5"
