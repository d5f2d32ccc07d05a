"""What one H200 took for the kernels of a step, a slot for an adapter and a sweep, beside the plan.

tests/data/README.md says how it was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.throughput import constants as c

from .test_measured_host import planned

TESTS = Path(__file__).parents[4]
MEASURED: dict[str, Any] = json.loads((TESTS / "data/h200-kernels.json").read_text("utf-8"))
PLANNER = (TESTS.parent / "docs/planner.md").read_text(encoding="utf-8")
KERNELS, ADAPTER, SWEEP = (MEASURED[name] for name in ("kernels", "adapter", "sweep"))
BANDWIDTH = 4.8e12
# Of one layer of Qwen3-8B: queries, keys, values and output, then the three of the feed-forward.
NUMBERS = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 12288
# 4 bits, and for each 128 numbers a scale of 16.
LAYER_BYTES = NUMBERS * (4 + 16 / 128) / 8


def product_us(rows: int) -> float:
    """Return the microseconds of one of Machete's products and of its barriers, decoding."""
    found = [one for one in KERNELS["awq"][str(rows)]["kernels"] if "prompts" not in one["kernel"]]
    products = [one for one in found if one["kernel"] == "machete"]
    calls = sum(one["calls"] for one in products)
    (cleared,) = (one["us"] for one in found if "memset" in one["kernel"])
    return float(sum(one["calls"] * one["us"] for one in products) / calls + cleared)


@pytest.mark.parametrize(("rows", "share"), [(1, 0.02), (8, 0.02), (64, 0.35)])
def test_a_product_by_machete_takes_so_long_beside_its_bytes(rows: int, share: float) -> None:
    read = LAYER_BYTES / 4 / (BANDWIDTH * c.MEMORY_SHARE)
    kept = c.MACHETE_SHARING + c.PRODUCT_KERNEL + c.SMALL_KERNEL
    assert (read + kept) * 1e6 == pytest.approx(product_us(rows), rel=share)


@pytest.mark.parametrize("rows", [1, 8])
def test_the_step_of_machete_is_the_planned_one(rows: int) -> None:
    step = sorted(KERNELS["awq"][str(rows)]["step_ms"])[1] * 1e-3
    assert rows / planned("awq", rows).rates.middle == pytest.approx(step, rel=0.07)


def test_one_request_of_four_layers_is_served_as_planned_where_nothing_disturbs_the_host() -> None:
    for step in KERNELS["latent-one"]["1"]["step_ms"]:
        assert planned("latent-one", 1).rates.holds(1e3 / step)


def test_eight_requests_touch_more_experts_than_one_has() -> None:
    def read(rows: int) -> float:
        found = KERNELS["latent-one"][str(rows)]["kernels"]
        (fused,) = (one["us"] for one in found if one["kernel"] == "fused_moe_kernel")
        # One of two kernels of each layer with experts: 3 x 7168 x 2048 numbers in all, of 8 bits.
        return float(fused * 1e-6 * BANDWIDTH * c.MEMORY_SHARE / (3 * 7168 * 2048 / 2))

    assert read(1) == pytest.approx(8, rel=0.15)
    assert read(8) == pytest.approx(256 * (1 - (1 - 8 / 256) ** 8), rel=0.05)


@pytest.mark.parametrize("load", ADAPTER["loads"], ids=lambda one: str(one["concurrency"]))
def test_a_slot_for_an_adapter_costs_the_base_model_nothing(load: dict[str, Any]) -> None:
    rates = planned("plain", load["concurrency"]).rates
    assert load["failed"] == 0
    assert load["output_tokens_per_second"] == pytest.approx(rates.middle, rel=0.03)
    told = f"{load['output_tokens_per_second']:,.0f} ({rates.middle:,.0f} planned)"
    assert told in PLANNER, told


def test_a_slot_for_an_adapter_holds_what_was_planned() -> None:
    weights, tokens = ADAPTER["weights_gib"], ADAPTER["kv_tokens"]
    assert weights["planned"] == weights["printed"]
    assert tokens["planned"][0] <= tokens["printed"] <= tokens["planned"][2]


@pytest.mark.parametrize("point", SWEEP["points"], ids=lambda one: str(one["max_num_seqs"]))
def test_points_of_the_sweep_are_planned_within_two_percent(point: dict[str, Any]) -> None:
    planned_then = point["predicted"][1]
    assert point["output_tokens_per_second"] == pytest.approx(planned_then, rel=0.02)
    today = planned("plain", point["max_num_seqs"]).rates.middle
    assert today == pytest.approx(planned_then, rel=0.01)
