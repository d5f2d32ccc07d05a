"""What `site.yml` planned and measured of the default engine on one H200, beside today's plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.estimate.throughput.constants import BAND

TESTS = Path(__file__).parents[4]
SITE: dict[str, Any] = json.loads((TESTS / "data" / "h200-site.json").read_text(encoding="utf-8"))
RATES, TOKENS = SITE["output_tokens_per_second"], SITE["kv_tokens"]
NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def planned() -> Verdict:
    """Plan that engine anew, from the configuration that its package's shape is carried as."""
    version = SITE["engine"].split(",")[0].removeprefix("vLLM ")
    request = Request(
        understand(Settings(CONFIGS[NAME], NAME), NAME),
        machines("1x1 H200"),
        RATES["concurrency"],
        RATES["input"],
        RATES["output"],
        engine_version=version,
    )
    return answer(request).chosen


def test_kv_tokens_are_planned_as_on_that_day_and_were_printed_within(planned: Verdict) -> None:
    assert planned.budget is not None
    low, middle, high = planned.budget.kv_tokens
    assert [low, middle, high] == TOKENS["planned"]
    assert low <= TOKENS["printed"] <= high
    assert middle == pytest.approx(TOKENS["printed"], rel=0.01)


def test_the_measured_rate_lies_in_the_band_that_is_planned_today(planned: Verdict) -> None:
    assert planned.load is not None
    rate = planned.load.output_rate
    assert rate.holds(RATES["measured"])
    assert [rate.low * BAND, rate.high / BAND] == pytest.approx([rate.middle] * 2)


def test_the_rate_is_planned_about_as_on_that_day(planned: Verdict) -> None:
    """What changes it further has to say so here.

    1.4 %, then 1.24 times as much: the host prepares a step while the device computes (0.14 on).
    Then 8 % less: what the host takes for a step of 0.32 was measured (h200-host.json).
    """
    assert planned.load is not None
    rate = planned.load.output_rate
    then = [1.24 * 0.92 * one for one in RATES["planned"]]
    assert [rate.low, rate.middle, rate.high] == pytest.approx(then, rel=0.02)
    assert rate.middle == pytest.approx(0.92 * RATES["measured"], rel=0.02)


def test_the_evidence_tells_the_recorded_figures() -> None:
    rows = (TESTS.parent / "docs" / "evidence.md").read_text(encoding="utf-8").splitlines()
    told = " ".join(row for row in rows if "h200-site.json" in row)
    low, middle, high = RATES["planned"]
    for words in (
        f"{RATES['measured']:,.0f} tokens/s at {RATES['concurrency']} requests",
        f"({middle:,} planned, {low:,} to {high:,})",
        f"{TOKENS['printed']:,} KV tokens ({TOKENS['planned'][1]:,} planned)",
        f"serves again in {SITE['after_sigkill']['serves_again_seconds']} s",
    ):
        assert words in told
