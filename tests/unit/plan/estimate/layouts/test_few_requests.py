"""Fewer requests than engines: an engine without a request delivers nothing."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.engine_set import engine_set
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.table import document, lines

from ...test_unfit import hosts, only, plan
from .conftest import LLAMA_8B


def test_engines_without_a_request_are_not_counted(ask: Any) -> None:
    """Four requests to sixteen engines were planned as sixteen of them."""
    rates = {}
    for requests in (1, 4, 16, 64):
        judge = Judge(ask("llama-8b", "2x8 H100-80", concurrency=requests))
        verdict = judge.verdict(Candidate(1, replicas=16))
        assert verdict.load is not None
        rates[requests] = verdict.output_rate / verdict.load.output_rate.middle
    assert rates == pytest.approx({1: 1, 4: 4, 16: 16, 64: 16})


def test_few_requests_are_given_more_devices_each(ask: Any) -> None:
    few = answer(ask("llama-70b", "1x8 H200", concurrency=1)).chosen
    assert few.candidate.tensor > 1 and few.candidate.replicas * few.candidate.ranks <= 8
    one = answer(ask("llama-70b", "1x8 H200", concurrency=1, objective="latency")).chosen
    assert few.output_rate <= 1.0001 / one.token_time


def test_what_is_printed_counts_the_same_engines(ask: Any) -> None:
    request = ask("llama-8b", "2x8 H100-80", concurrency=4, wanted=Candidate(1, replicas=16))
    found = answer(request)
    told = document(found)
    assert told["chosen"]["output_tokens_per_second"] == pytest.approx(
        4 * told["alone"]["output_tokens_per_second"]["middle"], rel=0.01
    )
    (row,) = [line for line in lines(found) if line.startswith("  4 requests ")]
    assert f"{found.chosen.output_rate:,.0f} tokens/s" in row


def test_a_set_with_more_engines_than_requests_counts_the_fast_ones(ask: Any) -> None:
    each = [
        engine_set(ask("r1", line, concurrency=1)).output_rate.middle
        for line in ("1x8 H200", "1x8 MI300X")
    ]
    several = engine_set(ask("r1", "1x8 H200 + 1x8 MI300X", concurrency=1))
    assert len(several.members) == 2
    assert several.output_rate.middle == pytest.approx(max(each))


def test_the_estimate_that_is_kept_says_how_many_requests_it_is_of() -> None:
    args = {"max_num_seqs": 4}
    made = plan(hosts(8, 8), LLAMA_8B, layout={"data": 16}, vllm_args=args)
    assert only(made).estimate["concurrency"] == 4
