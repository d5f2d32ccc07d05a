"""How many engines for prefill and for decode, beside as many replicas."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_ansible.plan.estimate.layouts import apart
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.command import OK, REFUSED, main
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LOADS = st.sampled_from([1, 3, 16, 64, 700])
PROMPTS = st.sampled_from([32, 1024, 6000])
ENGINES = st.integers(2, 8)


def engine(request: Request, tensor: int = 1) -> apart.Engine:
    judge = Judge(request)
    verdict = judge.verdict(Candidate(tensor, replicas=request.machines.devices // tensor))
    found = apart.engine_of(judge, verdict)
    assert found is not None, verdict.refusal
    return found


def asked(ask: Any, load: int, prompt: int, machines: str = "1x8 H200") -> Request:
    found: Request = ask("llama-8b", machines, concurrency=load, input_tokens=prompt)
    return found


@FEW
@given(load=LOADS, prompt=PROMPTS, engines=ENGINES)
def test_all_clients_are_somewhere_and_no_engine_does_more_than_it_can(
    ask: Any, load: int, prompt: int, engines: int
) -> None:
    """Little's law: as many requests are under way as there are clients."""
    one = engine(asked(ask, load, prompt))
    for row in apart.divisions(one, engines):
        replies = row.output_rate / 512
        under_way = replies * (row.first_token + 512 * row.token_time)
        # The step that makes the first token is in both.
        assert load * 0.99 <= under_way <= load * 1.1
        assert replies * prompt <= row.prefill * one.prompts * 1.001


def test_who_waits_for_a_full_decode_engine_waits_for_the_first_token(ask: Any) -> None:
    """A decode engine that runs four at a time makes their tokens no slower for the others."""
    one, few = (engine(asked(ask, 64, 1024)) for _ in range(2))
    few._most = 4.0
    full, plain = few.apart(7, 1), one.apart(7, 1)
    four = engine(asked(ask, 4, 1024)).apart(7, 1)
    assert full.token_time == pytest.approx(four.token_time, rel=0.05)
    # Sixty wait while four are computed.
    assert full.first_token > 10 * plain.first_token
    assert not full.holds(apart.Slo(first_token=1)) and full.holds(apart.Slo(token_time=0.01))


@FEW
@given(load=LOADS, prompt=PROMPTS, factor=st.floats(1, 1000))
def test_a_slower_transfer_never_brings_more(
    ask: Any, load: int, prompt: int, factor: float
) -> None:
    one, slow = (engine(asked(ask, load, prompt)) for _ in range(2))
    slow.moved *= factor
    assert slow.apart(1, 1).output_rate <= one.apart(1, 1).output_rate * 1.0001
    assert slow.apart(1, 1).first_token >= one.apart(1, 1).first_token * 0.9999


@FEW
@given(load=LOADS, prompt=PROMPTS, more=st.floats(0, 0.1))
def test_a_decode_engine_that_stands_still_for_each_prompt_never_brings_more(
    ask: Any, load: int, prompt: int, more: float
) -> None:
    one, still = (engine(asked(ask, load, prompt)) for _ in range(2))
    still.posted += more
    assert still.apart(1, 1).output_rate <= one.apart(1, 1).output_rate * 1.0001


def test_a_transfer_takes_its_blocks_and_not_only_its_bytes(ask: Any) -> None:
    """Of 64 KiB each, which NVLink moves in 0.2 us; 4.05 were measured, and 3.0 to post one."""
    inside = engine(asked(ask, 8, 4096, "1x2 H200"))
    assert inside.posted == pytest.approx(32 * 256 * 3.0e-6)
    assert inside.moved == pytest.approx(32 * 256 * 4.05e-6)
    # A card posts faster; a slow one is bound by its rate.
    across = engine(asked(ask, 8, 4096, "2x1 H200 @ 1x400Gb"))
    assert across.posted == pytest.approx(inside.posted / 20)
    slow = engine(asked(ask, 8, 4096, "2x1 H200 @ 1x10Gb"))
    assert slow.moved > 5 * across.moved


def test_prompts_of_others_are_waited_for_at_replicas_too(ask: Any) -> None:
    """A plan of one engine counts the prompt alone; of many clients each meets a few others."""
    waits = []
    for load in (1, 8, 64, 256):
        one = engine(asked(ask, load, 1024))
        row = one.replicas(1)
        alone = one._speed.at(load, 1024, 512, one._most).first_token.middle
        waits.append(row.first_token - alone)
    assert waits[0] == 0
    assert waits == sorted(waits) and waits[-1] > 0.01


@FEW
@given(load=LOADS, prompt=PROMPTS, first=st.floats(0.005, 5), each=st.floats(0.002, 0.1))
def test_what_is_advised_holds_the_slo_if_anything_does(
    ask: Any, load: int, prompt: int, first: float, each: float
) -> None:
    slo = apart.Slo(first, each)
    found = apart.advice(asked(ask, load, prompt), slo)
    assert isinstance(found, apart.Advice)
    one = engine(asked(ask, load, prompt))
    if any(row.holds(slo) for row in apart.divisions(one, 8)):
        assert found.apart.holds(slo) and found.least_apart is not None
    for least, whole in (
        (found.least_apart, found.apart),
        (found.least_replicas, found.replicas),
    ):
        assert least is None or (least.holds(slo) and least.devices <= whole.devices)


def test_long_prompts_want_more_prefill_and_short_ones_less(ask: Any) -> None:
    shares = []
    for prompt in (64, 1024, 7000):
        found = apart.advice(asked(ask, 256, prompt), apart.Slo(first_token=2))
        assert isinstance(found, apart.Advice)
        shares.append(found.apart.prefill / (found.apart.prefill + found.apart.decode))
    assert shares == sorted(shares) and shares[0] < shares[-1]


def test_decoding_engines_without_a_request_are_not_counted(ask: Any) -> None:
    one = engine(asked(ask, 2, 1024))
    assert one.apart(1, 7).output_rate <= one.apart(1, 2).output_rate * 1.001


def test_only_what_roles_can_be_given_is_an_engine_of_a_set(ask: Any) -> None:
    judge = Judge(ask("llama-8b", "2x8 H200"))
    for refused in (Candidate(1, 2, replicas=8), Candidate(16), Candidate(8)):
        assert apart.engine_of(judge, replace(judge.verdict(refused))) is None
    assert apart.advice(ask("llama-8b", "1x8 H200 + 1x8 H100-80"), apart.Slo()) == (
        "the machines differ"
    )
    said = apart.advice(ask("r1", "1x8 H200"), apart.Slo())
    assert said == "fewer than two engines of one server on one host each fit"


def test_the_command_prints_it_and_says_what_was_measured_of_it(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "2x8 H200"]) == OK
    assert "prefill +" not in capsys.readouterr().out
    assert main([config, "2x8 H200", "--slo-ttft-ms", "400", "--slo-tpot-ms", "60"]) == OK
    told = capsys.readouterr().out
    assert f"prefill and decode apart ({apart.UNPROVEN})" in told
    assert "TP8: 1 prefill + 1 decode" in told and "TP8: 2 replicas" in told
    assert "least within 400 ms to the first token and 60.0 ms a token: TP8: 1 prefill" in told
    assert main([config, "2x8 H200", "--slo-tpot-ms", "1"]) == OK
    told = capsys.readouterr().out
    assert told.count("misses the SLO") == 2
    assert "no division; no replicas" in told
    assert main([config, "2x8 H200", "--apart", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)["apart"]
    assert (found["apart"]["prefill"], found["apart"]["decode"]) == (1, 1)
    assert found["note"] == apart.UNPROVEN
    assert main([config, "2x8 H200", "--slo-ttft-ms", "0"]) == REFUSED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--also", "x", "--apart"], "--apart is not computed with --also"),
        (["--also", "x", "--slo-ttft-ms", "400"], "--slo-ttft-ms is not computed with --also"),
        (["--also", "x", "--draft", "y"], "--draft is not computed with --also"),
        (["--offers", "x", "--slo-tpot-ms", "40"], "--slo-tpot-ms is not computed with --offers"),
        (["--slo-ttft-ms", "inf", "--json"], "must be above 0, and finite"),
        (["--slo-tpot-ms", "nan", "--json"], "must be above 0, and finite"),
    ],
)
def test_what_has_no_effect_or_no_json_is_refused(
    words: list[str], said: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [] if "--offers" in words else ["2x8 H200"]
    assert main([config, *places, *words]) == REFUSED
    told = capsys.readouterr()
    assert said in told.out + told.err
