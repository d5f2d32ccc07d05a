"""What two H100 of one host served, beside what is planned for it today.

tests/data/README.md says how it was measured. One rate lies outside its band: docs/planner.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request

from .published import published

DATA = Path(__file__).parents[4] / "data" / "h100-two.json"
MEASURED: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
SHAPES = {"dense-tensor": "Qwen/Qwen3-8B", "experts-tensor": "Qwen/Qwen3-30B-A3B"}


@pytest.mark.parametrize("name", SHAPES)
def test_tensor_ranks_over_two_devices_are_as_planned(name: str) -> None:
    seen = MEASURED["engines"][name]
    split = Candidate(seen["layout"]["tensor"], seen["layout"]["pipeline"])
    request = Request(
        replace(published(SHAPES[name]), vocab=49152),
        machines("1x2 H100-80"),
        64,
        1024,
        512,
        engine_version="0.32.0",
        wanted=split,
    )
    chosen = answer(request).chosen
    assert chosen.load is not None and chosen.budget is not None
    assert chosen.load.output_rate.holds(seen["output_tokens_per_second"]["measured"])
    least, _, most = chosen.budget.kv_tokens
    assert least <= seen["kv_tokens"]["printed"] <= most


@pytest.mark.parametrize("name", MEASURED["engines"])
def test_what_was_planned_then_is_beside_what_was_measured(name: str) -> None:
    seen = MEASURED["engines"][name]
    least, _, most = seen["output_tokens_per_second"]["planned"]
    inside = least <= seen["output_tokens_per_second"]["measured"] <= most
    # Two stages of a model of 135 million numbers: what a stage costs the engine is not counted.
    assert inside is (name != "auto")
    least, _, most = seen["kv_tokens"]["planned"]
    assert least <= seen["kv_tokens"]["printed"] <= most
    weights = seen["weights_gib"]
    assert abs(weights["printed"] - weights["planned"]) < 0.011
