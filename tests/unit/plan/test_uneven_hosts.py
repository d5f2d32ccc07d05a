"""Tensor ranks that do not divide a host's devices: refused only where the project places none."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import seats, sites
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.layout import host_counts
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

from .test_unfit import hosts, only, plan

# 9 attention heads and 3 KV heads: TP3, and not TP2.
SMOLLM2 = CONFIGS["smollm2-135m-instruct"]
# 12 and 6 of them: TP6 and TP12, too.
WIDER = {**SMOLLM2, "num_attention_heads": 12, "num_key_value_heads": 6}


@pytest.mark.parametrize(
    ("counts", "layout", "ranks"),
    [
        ((8,), {"tensor": 3}, {"n1": 3}),
        ((8, 8), {"tensor": 3}, {"n1": 3}),
        ((8, 8), {"tensor": 3, "pipeline": 2}, {"n1": 3, "n2": 3}),
        ((8, 8), {"tensor": 3, "pipeline": 5, "nodes": 1}, None),
        ((4, 4), {"tensor": 6}, {"n1": 3, "n2": 3}),
        ((8, 8, 8), {"tensor": 12}, {"n1": 6, "n2": 6}),
        ((8,), {"data": 2, "tensor": 3}, {"n1": 6}),
        ((4, 4), {"data": 2, "tensor": 3}, {"n1": 3, "n2": 3}),
    ],
)
def test_what_the_project_places_is_not_refused(
    counts: tuple[int, ...], layout: dict[str, int], ranks: dict[str, int] | None
) -> None:
    nodes = layout.pop("nodes", None)
    if ranks is None:
        with pytest.raises(PlanError):
            plan(hosts(*counts), WIDER, layout=layout, nodes=nodes)
        return
    engine = only(plan(hosts(*counts), WIDER, layout=layout, nodes=nodes))
    assert dict(Counter(one.host for one in engine.ranks)) == ranks
    assert engine.estimate


def test_what_has_no_place_is_refused_with_its_numbers() -> None:
    with pytest.raises(PlanError, match=r"TP9 PP1 cannot run on 2x8 H100-80: .* so 3 nodes") as no:
        plan(hosts(8, 8), SMOLLM2, layout={"tensor": 9})
    assert no.value.problems[0].fix
    with pytest.raises(PlanError, match="TP3 PP5 takes 6 of each, so 3 nodes"):
        plan(hosts(8, 8), SMOLLM2, layout={"tensor": 3, "pipeline": 5})


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 9), st.sampled_from([1, 2, 3, 6, 12]), st.integers(1, 6)
)  # fmt: skip
def test_no_layout_that_finds_hosts_is_refused_for_its_shape(
    count: int, devices: int, tensor: int, pipeline: int
) -> None:
    world = tensor * pipeline
    placed = any(
        hosts <= count and world // hosts <= devices
        for hosts in host_counts(Layout(tensor, pipeline), None)
    )
    there = machines(f"{count}x{devices} H100-80")
    verdict = JUDGE.on(there).verdict(Candidate(tensor, pipeline))
    assert verdict.accepted or not placed, verdict.refusal
    if verdict.accepted:
        found = seats(Candidate(tensor, pipeline), there)
        assert len({(seat.node, seat.device) for seat in found}) == world
        assert all(seat.device < devices for seat in found)
        spans = {
            len({one.node for one in found if one.stage == stage}) for stage in range(pipeline)
        }
        assert max(spans) == sites(Candidate(tensor, pipeline), there)[0].tensor_nodes


class _Judges:
    def __init__(self) -> None:
        self.model = understand(Settings(WIDER, "config.json"), "smollm2")

    def on(self, there: object) -> Judge:
        return Judge(Request(model=self.model, machines=there))  # type: ignore[arg-type]


JUDGE = _Judges()
