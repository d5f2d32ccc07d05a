"""Data ranks that two H100 served from a bundle, beside what is planned for them today.

tests/data/README.md says how they were measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.machines import Fabric, machines
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.throughput.collectives import links
from vllm_ansible.plan.estimate.throughput.constants import OWN_MOST

from .published import published

DATA = Path(__file__).parents[4] / "data" / "h100-bundle.json"
MEASURED: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
EXPERTS = MEASURED["engines"]["experts-data"]


@pytest.mark.parametrize(
    ("concurrency", "measured"),
    [
        (64, EXPERTS["output_tokens_per_second"]["measured"]),
        (256, EXPERTS["at_256"]["output_tokens_per_second"]),
    ],
)
def test_experts_over_two_data_ranks_are_as_planned(concurrency: int, measured: float) -> None:
    request = Request(
        replace(published("Qwen/Qwen3-30B-A3B"), vocab=49152),
        machines("1x2 H100-80"),
        concurrency,
        1024,
        512,
        engine_version="0.32.0",
        wanted=Candidate(1, data=2, expert=True),
    )
    chosen = answer(request).chosen
    assert chosen.load is not None and chosen.budget is not None
    assert chosen.load.output_rate.holds(measured)
    least, _, most = chosen.budget.kv_tokens
    assert least <= EXPERTS["kv_tokens"]["printed"] <= most


def test_the_all_reduce_of_steps_takes_as_long_as_planned() -> None:
    """Measured after the terms were made, and not used for them."""
    measured = json.loads(DATA.with_name("h100-all-reduce.json").read_text(encoding="utf-8"))
    between = links(accelerator("H100-80"), Fabric(1.0), measured["devices"], 1)
    for row in measured["rows"]:
        size = row["tokens"] * row["width"] * 2
        if row["vllm_us"] is None:
            assert size >= OWN_MOST
        else:
            assert 1 / 1.5 <= between.all_reduce(size) * 1e6 / row["vllm_us"] <= 1.5, row
        assert 1 / 2.5 <= between.by_library(size) * 1e6 / row["nccl_us"] <= 2.5, row
