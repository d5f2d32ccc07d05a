"""Machines of several makers: an engine is on those of one, and what is left idle is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ansible.plan.estimate.layouts.answer import NoLayout, answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.several import share


def makers(found: Any) -> set[str]:
    kinds = {node.name: node.accelerator.kind for node in found.request.machines.nodes}
    return {kinds[seat.node] for seat in found.seats()}


def test_an_engine_is_on_the_machines_of_one_maker(ask: Any) -> None:
    found = answer(ask("r1", "1x8 H200 + 1x8 MI300X"))
    assert len(makers(found)) == 1
    assert found.chosen.nodes == 1
    (note,) = [note for note in found.notes if "another maker" in note]
    assert "8 devices" in note and "stay free" in note


def test_a_model_that_needs_both_makers_has_no_layout(ask: Any) -> None:
    with pytest.raises(NoLayout, match=r"1x4 H100-80 .*1x2 MI300X") as refused:
        answer(ask("r1", "1x4 H100-80 + 1x2 MI300X"))
    (problem,) = refused.value.problems
    assert problem.fix and "maker" in problem.expected


def test_a_split_that_was_asked_for_is_on_one_maker_too(ask: Any) -> None:
    wanted = Candidate(8, 2)
    with pytest.raises(NoLayout, match="needs 16 devices, and there are 8"):
        answer(ask("r1", "1x8 H200 + 1x8 MI300X", wanted=wanted))
    one = answer(ask("llama-8b", "1x8 H200 + 1x8 MI300X", wanted=Candidate(2, replicas=8)))
    assert one.chosen.candidate.replicas == 4


def test_two_models_share_machines_of_two_makers_without_a_device_twice(ask: Any) -> None:
    line = "1x8 H200 + 1x8 MI300X + 1x8 H200"
    plans = share([ask("llama-8b", line), ask("llama-70b", line)])
    taken = [(seat.node, seat.device) for one in plans for seat in one.seats()]
    assert len(taken) == len(set(taken))
    assert all(len(makers(one)) == 1 for one in plans)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(
        st.sampled_from(["1x8 H200", "1x4 H100-80", "1x8 MI300X", "2x8 S60", "1x2 MI300X"]),
        min_size=2,
        max_size=4,
    )
)
def test_no_engine_ever_spans_makers(ask: Any, kinds: list[str]) -> None:
    try:
        found = answer(ask("llama-8b", " + ".join(kinds)))
    except NoLayout:
        return
    assert len(makers(found)) == 1
