"""What limits is named from samples, and not named where they do not separate two candidates."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.benchmark import bottleneck as named
from vllm_ansible.benchmark import ramp as reported
from vllm_ansible.benchmark.bottleneck import bottleneck
from vllm_ansible.benchmark.ramp_page import page

from .ramps import asked, result

# Of a request: a second, all of it in the engine, nothing full.
FREE = {
    "requests": 32.0,
    "input_tokens": 64.0,
    "output_tokens": 32.0,
    "e2e_ms_mean": 1000.0,
    "engine_e2e_ms_mean": 980.0,
    "queue_ms_mean": 10.0,
    "prefill_ms_mean": 170.0,
    "decode_ms_mean": 780.0,
    "preemptions": 0.0,
    "seats": 64.0,
    "running_most": 16.0,
    "running_mean": 15.0,
    "waiting_mean": 0.0,
    "seats_full_share": 0.0,
    "cache_full_share": 0.0,
    "cache_usage_most": 0.3,
    "cache_tokens": 8192.0,
    "client_busy": 0.2,
    "front_end_busy": 0.3,
    "server_unsent_share": 0.02,
}
# Two thirds of the time wait for a seat.
WAITS = {"queue_ms_mean": 660.0, "prefill_ms_mean": 60.0, "decode_ms_mean": 240.0}
SEATS = {**WAITS, "seats": 8.0, "running_most": 8.0, "running_mean": 7.9, "seats_full_share": 0.9}
CACHE = {
    **WAITS,
    "cache_full_share": 0.8,
    "cache_usage_most": 1.0,
    "running_most": 8.0,
    "running_mean": 7.5,
}
# Two thirds of the time are spent outside of the engine.
OUTSIDE = {
    "engine_e2e_ms_mean": 340.0,
    "queue_ms_mean": 0.0,
    "prefill_ms_mean": 40.0,
    "decode_ms_mean": 280.0,
}


def limit(step: float = 32, knee: float = 8, **more: Any) -> dict[str, Any]:
    options = {name: more.pop(name) for name in ("least", "users") if name in more}
    share = more.pop("share", 0.2)
    return bottleneck({**FREE, **more}, step, knee, share, **options)


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (SEATS, named.SEATS),
        ({**SEATS, "seats": 0.0}, named.SEATS),
        (CACHE, named.CACHE),
        # One more request needs 96 tokens, and 80 are free.
        ({**CACHE, "cache_full_share": 0.0, "cache_usage_most": 1 - 80 / 8192}, named.CACHE),
        ({"preemptions": 8.0}, named.CACHE),
        ({}, named.DECODE),
        ({"share": 0.7}, named.PREFILL),
        ({**OUTSIDE, "client_busy": 0.97}, named.GENERATOR),
        ({**OUTSIDE, "front_end_busy": 0.97}, named.FRONT_END),
        ({**OUTSIDE, "server_unsent_share": 0.9}, named.NETWORK),
        ({**OUTSIDE, "network_used_share": 0.95}, named.NETWORK),
    ],
)
def test_each_is_named_where_only_its_own_limit_is_reached(
    shown: dict[str, Any], name: str
) -> None:
    found = limit(**shown)
    assert (found["name"], found["certain"]) == (name, True), found
    assert found["why"] and found["fix"] and found["evidence"]


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        # Both threads get no processor.
        (
            {**OUTSIDE, "client_busy": 0.95, "front_end_busy": 0.9},
            [named.GENERATOR, named.FRONT_END],
        ),
        # Seats are full, and the client is late for as much of the time.
        (
            {
                **SEATS,
                "queue_ms_mean": 420.0,
                "engine_e2e_ms_mean": 640.0,
                "prefill_ms_mean": 20.0,
                "decode_ms_mean": 180.0,
                "client_busy": 0.97,
            },
            [named.SEATS, named.GENERATOR],
        ),
        # Much is spent outside, and nothing there is at its limit.
        ({**OUTSIDE, "client_busy": 0.7}, [named.DECODE, named.GENERATOR]),
    ],
)
def test_two_candidates_that_are_not_told_apart_are_both_named(
    shown: dict[str, Any], names: list[str]
) -> None:
    found = limit(**shown)
    assert (found["certain"], found["candidates"]) == (False, names), found
    assert "not certain: " + " or ".join(names) in reported.bottleneck_words(found)


def test_seats_that_are_full_limit_nothing_where_fewer_brought_as_much() -> None:
    assert limit(**SEATS, knee=8)["name"] == named.SEATS
    assert limit(**SEATS, knee=4)["name"] == named.DECODE


def test_full_seats_may_be_a_slow_engine_where_no_step_left_one_free() -> None:
    shown = {**SEATS, "queue_ms_mean": 600.0, "decode_ms_mean": 340.0}
    assert limit(**shown, least=4)["certain"]
    found = limit(**shown, least=8)
    assert (found["certain"], set(found["candidates"])) == (False, {named.SEATS, named.DECODE})


def test_full_seats_at_a_rate_may_be_a_slow_engine() -> None:
    found = limit(**{**SEATS, "queue_ms_mean": 600.0, "decode_ms_mean": 340.0}, users=False)
    assert (found["certain"], set(found["candidates"])) == (False, {named.SEATS, named.DECODE})


def test_requests_that_were_sent_late_are_the_generators() -> None:
    found = limit(**SEATS, users=False, send_lag_share=3.0)
    assert found["name"] == named.GENERATOR


def test_throughput_that_still_grows_has_no_bottleneck_yet() -> None:
    assert limit(step=8, knee=8)["name"] == named.NOT_REACHED


def test_one_step_says_not_whether_more_would_come() -> None:
    assert limit(step=8, knee=8, least=8)["name"] == named.UNKNOWN
    assert limit(step=8, knee=8, least=8, **OUTSIDE, client_busy=0.97)["name"] == named.GENERATOR


def test_without_the_engines_clock_nothing_is_named() -> None:
    figures = {name: value for name, value in FREE.items() if name != "engine_e2e_ms_mean"}
    found = bottleneck(figures, 32, 8, 0.2)
    assert (found["name"], found["certain"]) == (named.UNKNOWN, False)


def test_a_ramp_of_an_engine_with_six_seats_names_them() -> None:
    told = result(asked())
    assert told["bottleneck"]["name"] == named.SEATS
    assert "bottleneck: seats (requests waited while 6 of 6 seats were taken)" in reported.line(
        told
    )
    assert "6 of 6 seats were taken" in page(told)
    assert "raise max_num_seqs" in page(told)


def test_the_page_says_that_the_generator_shared_the_host_and_what_it_took() -> None:
    text = page(result(asked()))
    assert "ran on n1, beside the engine</b>: it used 0.10 CPUs, 5 % of that host's" in " ".join(
        text.split()
    ).replace("&#39;", "'")


def test_rounds_in_which_the_engine_compiled_are_marked_and_not_judged() -> None:
    ramped = asked()
    told = result(ramped, compiling=(8, 1))
    step = reported.at(told, 8)
    assert step["compiled"].startswith("Triton kernel JIT compilation")
    # The other two rounds, which are six times as fast.
    assert step["figures"]["output_tokens_per_second"]["least"] == 6 * 32
    assert "vLLM compiled at 8 users" in reported.line(told)
    assert "JIT compilation during inference" in page(told)


def test_a_ramp_by_rates_speaks_of_requests_and_has_no_users() -> None:
    told = result(asked(arrivals="rate", steps=(0.5, 2, 8, 16), burstiness=0.25))
    assert "knee at 8 requests/s" in reported.line(told)
    assert told["prompts_alone"] is None
    text = page(told)
    assert "burstiness 0.25" in text and "each<br>rank" in text
    row = reported.as_csv(told).splitlines()[1].split(",")
    columns = reported.as_csv(told).splitlines()[0].split(",")
    named_columns = dict(zip(columns, row, strict=True))
    assert (named_columns["users"], named_columns["rate"]) == ("", "0.5")
