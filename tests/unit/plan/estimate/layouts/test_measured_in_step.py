"""Data ranks that step together, eager ones and conversations on two H200, beside today's plan.

tests/data/README.md says how they were measured. Nothing was fitted to them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS as CARRIED
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.estimate.throughput.constants import EAGER_KERNEL

from .published import CONFIGS

TESTS = Path(__file__).parents[4]
MEASURED: dict[str, Any] = json.loads((TESTS / "data/h200-ranks.json").read_text("utf-8"))
DOOR = (TESTS.parent / "docs/door.md").read_text(encoding="utf-8")
ENGINES: dict[str, Any] = MEASURED["engines"]
FEW = {"num_hidden_layers": 4, "first_k_dense_replace": 1}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "experts": ("Qwen--Qwen3-30B-A3B", {}),
    "latent-experts": ("deepseek-ai--DeepSeek-R1", FEW),
}
SOUND = "smollm2-135m-instruct"
ROWS = [
    (name, load["concurrency"], load["output_tokens_per_second"])
    for name in SHAPES
    for load in ENGINES[name]["loads"]
]
# Four layers are bound by their host's processor, whose speed differs (test_measured_host.py).
BY_THE_HOST = {("latent-experts", 1), ("latent-experts", 8)}


def shape(name: str) -> Model:
    if name == "sound":
        return understand(Settings(CARRIED[SOUND], SOUND), SOUND)
    config, changes = SHAPES[name]
    found = json.loads((CONFIGS / f"{config}_config.json").read_text(encoding="utf-8"))
    values = {**found, **changes, "vocab_size": MEASURED["vocabulary"]}
    return understand(Settings(values, "one"), "one")


@lru_cache
def planned(name: str, concurrency: int) -> Verdict:
    sizes = ENGINES[name]["input_tokens"], ENGINES[name]["output_tokens"]
    eager = name == "sound"
    wanted = Candidate(1, replicas=2) if eager else Candidate(1, data=2, expert=True)
    asked = Request(
        shape(name),
        machines("1x2 H200"),
        concurrency,
        *sizes,
        engine_version="0.32.0",
        eager=eager,
        wanted=wanted,
    )
    return answer(asked).chosen


@pytest.mark.parametrize(("name", "concurrency", "measured"), ROWS)
def test_ranks_in_step_are_as_fast_as_planned(name: str, concurrency: int, measured: float) -> None:
    verdict = planned(name, concurrency)
    assert verdict.rates.holds(measured)
    if (name, concurrency) not in BY_THE_HOST:
        assert verdict.output_rate == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("name", ENGINES)
def test_a_rank_holds_what_was_planned(name: str) -> None:
    verdict = planned(name, 64)
    assert verdict.budget is not None
    least, _, most = verdict.budget.kv_tokens
    assert least <= ENGINES[name]["kv_tokens"]["printed"] <= most
    printed = ENGINES[name]["weights_gib"]["printed"]
    assert verdict.rank_bytes / 2**30 == pytest.approx(printed, abs=0.01)


def test_an_eager_step_is_planned_of_launches_that_this_processor_needs_longer_for() -> None:
    """46 us a launch, as the ranks of DeepSeek-R1 did on a machine like it a week before."""
    verdict = planned("sound", 64)
    launches = verdict.token_time / EAGER_KERNEL
    assert launches == pytest.approx(300, rel=0.01)
    first, second = ENGINES["sound"]["loads"][0], ENGINES["sound"]["after_the_kill"]
    for load in (first, second):
        took = load["inter_token_latency_ms_median"] / 1e3 / launches
        assert took == pytest.approx(46e-6, rel=0.05)
        assert verdict.rates.low > load["output_tokens_per_second"]


def test_the_page_of_the_door_has_what_conversations_came_to() -> None:
    kept = MEASURED["conversations"]
    both = [kept["least_connections"], kept["conversations"]]
    rows = {
        "prompt tokens that were cached": ("cached_share", 100, "%"),
        "TTFT of later turns, median": ("later_ttft_ms_median", 1, "ms"),
        "TTFT of later turns, p90": ("later_ttft_ms_p90", 1, "ms"),
    }
    for told, (name, factor, unit) in rows.items():
        cells = (
            ", ".join(f"{factor * one[name]:,.0f}" for one in rounds) + f" {unit}"
            for rounds in both
        )
        row = f"| {told}, two rounds | {' | '.join(cells)} |"
        assert row in DOOR, row
