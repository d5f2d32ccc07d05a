"""Layouts that two H200 served, beside what is planned for them today.

tests/data/README.md says how they were measured. Nothing was fitted to them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict

from .published import BLOCK, CONFIGS

DATA = Path(__file__).parents[4] / "data" / "h200-layouts.json"
MEASURED: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
ENGINES: dict[str, Any] = MEASURED["engines"]
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8-auto": ("Qwen--Qwen3-8B", {"quantization_config": BLOCK}),
    "dense-data": ("Qwen--Qwen3-8B", {}),
    "dense-tensor": ("Qwen--Qwen3-8B", {}),
    "latent-tensor": (
        "deepseek-ai--DeepSeek-R1",
        {"num_hidden_layers": 4, "first_k_dense_replace": 1},
    ),
}
ROWS = [
    (name, load["concurrency"], load["output_tokens_per_second"])
    for name, engine in ENGINES.items()
    for load in engine["loads"]
    # Kernels that were compiled between requests say nothing of a rate.
    if load["concurrency"] not in engine.get("compiled_while_measured", ())
]


@lru_cache
def model(name: str) -> Model:
    config, changes = SHAPES[name]
    found = json.loads((CONFIGS / f"{config}_config.json").read_text(encoding="utf-8"))
    values = {**found, **changes, "vocab_size": MEASURED["vocabulary"]}
    return understand(Settings(values, name), name)


@lru_cache
def planned(name: str, concurrency: int) -> Verdict:
    # Data ranks of a dense model are engines beside each other.
    layout = ENGINES[name]["layout"]
    wanted = Candidate(layout["tensor"], replicas=layout.get("data", 1))
    given = (MEASURED["input_tokens"], MEASURED["output_tokens"])
    return answer(
        Request(
            model(name),
            machines("1x2 H200"),
            concurrency,
            *given,
            engine_version="0.32.0",
            wanted=wanted,
        )
    ).chosen


@pytest.mark.parametrize(("name", "concurrency", "measured"), ROWS)
def test_a_served_layout_is_as_fast_as_planned(
    name: str, concurrency: int, measured: float
) -> None:
    assert planned(name, concurrency).rates.holds(measured)


def test_the_choice_between_replicas_and_a_tensor_group_is_the_faster() -> None:
    """At 64 requests TP2 gave 13 % more than two data ranks, and both were planned equal."""
    data, tensor = (planned(name, 64) for name in ("dense-data", "dense-tensor"))
    rates = {name: rate for name, load, rate in ROWS if load == 64}
    measured = rates["dense-tensor"] / rates["dense-data"]
    assert tensor.output_rate / data.output_rate == pytest.approx(measured, rel=0.05)
    chosen = answer(
        Request(model("dense-data"), machines("1x2 H200"), 64, 1024, 512, engine_version="0.32.0")
    ).chosen
    assert chosen.candidate == Candidate(2)
    # In FP8 they are planned within 5 %, and two data ranks have no collectives.
    eight = answer(
        Request(model("fp8-auto"), machines("1x2 H200"), 64, 1024, 512, engine_version="0.32.0")
    ).chosen
    assert eight.candidate == Candidate(1, replicas=2)


def test_dense_rates_of_this_release_are_planned_within_a_twelfth() -> None:
    """While each captured kernel was planned to take 3 us they were 2 to 10 % too fast."""
    dense = [row for row in ROWS if row[0] != "latent-tensor"]
    for name, concurrency, measured in dense:
        assert planned(name, concurrency).output_rate == pytest.approx(measured, rel=1 / 12)


def in_waves(name: str, concurrency: int) -> float:
    """Return the tokens a second of replies that begin together: prompts first, then steps."""
    verdict = planned(name, concurrency)
    assert verdict.load is not None
    prompts = verdict.load.concurrency * MEASURED["input_tokens"] / verdict.load.prefill_rate
    steps = MEASURED["output_tokens"] * verdict.load.decode.total
    return verdict.requests * float(MEASURED["output_tokens"]) / (prompts + steps)


@pytest.mark.parametrize(
    ("name", "concurrency", "measured"), [row for row in ROWS if row[1] in (64, 256)]
)
def test_prompts_and_steps_in_waves_take_as_long_as_measured(
    name: str, concurrency: int, measured: float
) -> None:
    """Replies of one length begin together: why the rate itself is planned lower."""
    assert measured == pytest.approx(in_waves(name, concurrency), rel=0.13)


@pytest.mark.parametrize(
    ("name", "concurrency", "ttft"),
    [
        (name, load["concurrency"], load["ttft_ms_p99"] / 1000)
        for name, engine in ENGINES.items()
        for load in engine["loads"]
    ],
)
def test_twice_the_last_first_token_planned_tells_a_healthy_engine_from_one_that_compiles(
    name: str, concurrency: int, ttft: float
) -> None:
    """What the stage observe takes as the limit of the time to the first token."""
    verdict = planned(name, concurrency)
    assert verdict.load is not None
    limit = 2 * verdict.load.last_first_token(MEASURED["input_tokens"])
    compiled = concurrency in ENGINES[name].get("compiled_while_measured", ())
    assert (ttft > limit) == compiled


@pytest.mark.parametrize("name", ENGINES)
def test_what_a_rank_holds_is_as_planned(name: str) -> None:
    verdict, printed = planned(name, 64), ENGINES[name]
    assert verdict.budget is not None
    least, _, most = verdict.budget.kv_tokens
    assert least <= printed["kv_tokens"]["printed"] <= most
    assert verdict.rank_bytes / 2**30 == pytest.approx(printed["weights_gib"]["printed"], rel=0.005)


def test_experts_with_latent_attention_decode_as_planned() -> None:
    """Ten seconds of decoding between compilations, by the engine's own log."""
    measured = ENGINES["latent-tensor"]["log"]["at_256_over_10_s"]
    assert planned("latent-tensor", 256).rates.holds(measured)
