"""`layout: auto` builds what `vllm-ansible plan` proposes, wherever one engine can be that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import NoLayout, answer
from vllm_ansible.plan.estimate.layouts.choice import choose
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

from .estimate.layouts.conftest import SHAPES
from .test_unfit import hosts, only, plan

WHOLE = "--enable-expert-parallel"
PLACES = [((8, 8), "H100-80"), ((8,), "H200"), ((8, 8), "H200"), ((4,), "A100-80")]
PLACES += [((2,), "H100-80"), ((8, 8, 8), "H100-80"), ((4, 4, 4, 4), "H100-80"), ((8,), "MI300X")]


def rate(engine: PlannedEngine) -> float:
    return float(engine.estimate["output_tokens_per_second"][1])


def test_two_nodes_of_h100_get_the_data_ranks_that_the_verb_proposes() -> None:
    """`auto` built TP8 PP2, which the planner itself rates 21 % below its own proposal."""
    engine = only(plan(hosts(8, 8), SHAPES["r1"]))
    assert engine.layout == Layout(8, 1, 2)
    stages = only(plan(hosts(8, 8), SHAPES["r1"], layout={"tensor": 8, "pipeline": 2}))
    assert rate(stages) < 0.85 * rate(engine)


@pytest.mark.parametrize("name", ["r1", "llama-8b", "llama-70b", "qwen3-235b"])
@pytest.mark.parametrize(("counts", "kind"), PLACES)
def test_auto_is_what_the_verb_proposes(name: str, counts: tuple[int, ...], kind: str) -> None:
    there = machines(f"{len(counts)}x{counts[0]} {kind}")
    model = understand(Settings(SHAPES[name], "config.json"), name)
    judge = Judge(Request(model, there))
    try:
        proposed = answer(judge.request).chosen
    except NoLayout:
        with pytest.raises(PlanError, match="no layout is expected to run"):
            plan(hosts(*counts, kind=kind), SHAPES[name])
        return
    one = proposed.candidate
    engine = only(plan(hosts(*counts, kind=kind), SHAPES[name]))
    if judge.facts.experts and one.replicas > 1:
        # One engine is no set of engines of a mixture: the stage builds the best that one can be.
        alone = {replace(each.candidate, replicas=1) for each in judge.all()}
        single = choose([judge.verdict(each) for each in sorted(alone, key=str)], judge.request)
        assert single is not None and rate(engine) >= single.output_rate * 0.999
        return
    assert engine.layout == Layout(one.tensor, one.pipeline, one.data * one.replicas)
    assert rate(engine) == pytest.approx(proposed.output_rate, rel=1e-3)
    assert (WHOLE in engine.arguments) == (one.expert and one.data == 1)


def test_experts_are_kept_whole_unless_the_inventory_decides() -> None:
    def arguments(**given: Any) -> tuple[str, ...]:
        given = {"max_num_seqs": 128, **given}
        return only(plan(hosts(8, kind="H200"), SHAPES["r1"], vllm_args=given)).arguments

    assert WHOLE in arguments()
    assert WHOLE not in arguments(enable_expert_parallel=False)
    assert arguments(enable_expert_parallel=True).count(WHOLE) == 1


def test_an_executor_or_a_second_engine_keeps_data_ranks_out() -> None:
    assert only(plan(hosts(8, 8), SHAPES["r1"], executor="ray")).layout == Layout(8, 2)
    two = plan(hosts(8, 8), SHAPES["llama-8b"], {"name": "b", "model": "org/model"})
    assert [engine.layout.data for engine in two.engines] == [1, 1]
