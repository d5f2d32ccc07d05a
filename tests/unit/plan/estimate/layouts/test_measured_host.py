"""What four H200 and their host's processor took, beside today's plan.

tests/data/README.md says how it was measured. The host's own terms come from samples of workers
and from gloo alone, not from the rates.
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
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.estimate.throughput import constants as c

from .published import CONFIGS

TESTS = Path(__file__).parents[4]
MEASURED: dict[str, Any] = json.loads((TESTS / "data/h200-host.json").read_text("utf-8"))
PLANNER = (TESTS.parent / "docs/planner.md").read_text(encoding="utf-8")
DOOR = (TESTS.parent / "docs/door.md").read_text(encoding="utf-8")
ENGINES: dict[str, Any] = MEASURED["engines"]
HOST: dict[str, Any] = MEASURED["host"]
WORKERS = {(one["engine"], one["requests"]): one for one in HOST["workers"]}
FEW = {"num_hidden_layers": 4, "first_k_dense_replace": 1, "vocab_size": MEASURED["vocabulary"]}
DENSE = {"vocab_size": MEASURED["vocabulary"]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
SHAPES: dict[str, tuple[str, str, dict[str, Any], str, Candidate]] = {
    "tensor-stages": ("Qwen3-8B, TP2 PP2", "Qwen--Qwen3-8B", DENSE, "1x4 H200", Candidate(2, 2)),
    "plain": ("Qwen3-8B", "Qwen--Qwen3-8B", DENSE, "1x1 H200", Candidate(1)),
    "awq": (
        "Qwen3-8B in AWQ",
        "Qwen--Qwen3-8B",
        {**DENSE, "quantization_config": AWQ},
        "1x1 H200",
        Candidate(1),
    ),
    "mxfp4": ("gpt-oss-20b", "openai--gpt-oss-20b", {}, "1x1 H200", Candidate(1)),
    "latent-one": (
        "DeepSeek-R1 with 4 layers",
        "deepseek-ai--DeepSeek-R1",
        FEW,
        "1x1 H200",
        Candidate(1),
    ),
    "latent-experts": (
        "the same, two ranks in step",
        "deepseek-ai--DeepSeek-R1",
        FEW,
        "1x2 H200",
        Candidate(1, data=2, expert=True),
    ),
}
EAGER = {"eager-ranks": ("1x2 H200", 2), "eager-one": ("1x1 H200", 1)}
# Four layers at one request beside engines that started, ranks in step at few, and eager engines.
TOO_FAST = {("latent-one", 1), ("latent-experts", 1), ("latent-experts", 8)}
# More requests than the distinct experts that their replies touched.
TOO_SLOW = {("latent-one", 64)}


def last(name: str) -> dict[int, float]:
    """Return the rate by requests; of a load that was measured twice the second."""
    return {one["concurrency"]: one["output_tokens_per_second"] for one in ENGINES[name]["loads"]}


@lru_cache
def planned(name: str, concurrency: int) -> Verdict:
    """Plan a shape as it was served."""
    _, config, changes, there, wanted = SHAPES[name]
    found = json.loads((CONFIGS / f"{config}_config.json").read_text(encoding="utf-8"))
    asked = Request(
        understand(Settings({**found, **changes}, "one"), "one"),
        machines(there),
        concurrency,
        1024,
        512,
        engine_version="0.32.0",
        wanted=wanted,
    )
    return answer(asked).chosen


@pytest.mark.parametrize("name", SHAPES)
def test_rates_lie_in_their_bands_or_are_said_not_to(name: str) -> None:
    cells = [SHAPES[name][0]]
    for concurrency, measured in sorted(last(name).items()):
        rates = planned(name, concurrency).rates
        out = (name, concurrency) in TOO_FAST | TOO_SLOW
        assert rates.holds(measured) is not out, (concurrency, measured, rates)
        assert (measured > rates.high) is ((name, concurrency) in TOO_SLOW)
        cells.append(
            f"{rates.middle:,.0f}, " + (f"**{measured:,.0f}**" if out else f"{measured:,.0f}")
        )
        if concurrency == 64 and name == "latent-experts":
            cells.append("not measured")
    row = f"| {' | '.join(cells)} |"
    assert row in PLANNER, row


def test_ranks_of_the_same_day_hold() -> None:
    ranks = json.loads((TESTS / "data/h200-ranks.json").read_text("utf-8"))["engines"]
    told = []
    for load in sorted(ranks["latent-experts"]["loads"], key=lambda one: int(one["concurrency"])):
        rates = planned("latent-experts", load["concurrency"]).rates
        assert rates.holds(load["output_tokens_per_second"])
        told.append(f"{rates.middle:,.0f}")
    assert f"{', '.join(told[:-1])} and {told[-1]} are planned, all in their bands" in PLANNER, told


@pytest.mark.parametrize("name", SHAPES)
def test_a_rank_holds_what_was_planned(name: str) -> None:
    budget, printed = planned(name, 64).budget, ENGINES[name]["kv_tokens"]["printed"]
    assert budget is not None
    assert budget.kv_tokens[0] <= printed <= budget.kv_tokens[2]


def test_a_worker_takes_so_long_for_a_step() -> None:
    def busy(engine: str) -> float:
        one = WORKERS[engine, 1]
        return float(one["busy"] / one["tokens_per_second"])

    assert busy("plain") == pytest.approx(c.V2_HOST_STEP, rel=0.01)
    # Of another model, whose device was faster than its host.
    assert busy("latent-one") == pytest.approx(c.V2_HOST_STEP, rel=0.02)
    staged = busy("tensor-stages, last stage") - busy("plain")
    assert staged == pytest.approx(c.STAGE_HOST_STEP, rel=0.04)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_agree_in_a_time_that_grows_with_them(ranks: int) -> None:
    seen = HOST["quiet"][f"gloo {ranks}"]["int32 6xN, 1 ms of work between"]["median_us"]
    assert ranks * c.AGREE_RANK == pytest.approx(seen * 1e-6, rel=0.06)


@pytest.mark.parametrize("name", EAGER)
def test_eager_engines_were_slower_than_their_band(name: str) -> None:
    there, replicas = EAGER[name]
    model = understand(Settings(CARRIED["smollm2-135m-instruct"], name), name)
    wanted = Candidate(1, replicas=replicas)
    asked = Request(
        model, machines(there), 64, 1024, 512, engine_version="0.32.0", eager=True, wanted=wanted
    )
    verdict = answer(asked).chosen
    assert all(verdict.rates.low > rate for rate in last(name).values())


def test_the_page_of_the_door_has_what_pauses_came_to() -> None:
    kept = MEASURED["conversations"]
    both = [kept["least_connections"], kept["conversations"]]
    for told, name, factor, unit in (
        ("prompt tokens that were cached, with pauses", "cached_share", 100, "%"),
        ("TTFT of later turns, median, with pauses", "later_ttft_ms_median", 1, "ms"),
        ("TTFT of later turns, p90, with pauses", "later_ttft_ms_p90", 1, "ms"),
    ):
        cells = (
            ", ".join(f"{factor * one[name]:,.0f}" for one in rounds) + f" {unit}"
            for rounds in both
        )
        row = f"| {told} | {' | '.join(cells)} |"
        assert row in DOOR, row
