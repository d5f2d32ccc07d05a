"""Which points a ramp has, where its knee is, and what is reported of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.benchmark import ramp as reported
from vllm_ansible.benchmark.bottleneck import NOT_REACHED
from vllm_ansible.benchmark.cost import engine_price, per_million, split
from vllm_ansible.benchmark.ramp_page import page
from vllm_ansible.node.engine import ramp
from vllm_ansible.node.process.process import ProcessError

from .ramps import ENGINE, PRICE, asked, points, result

FORMULA = '=HYPERLINK("https://example.org")<script>'


def climbed(found: list[dict[str, Any]]) -> list[int]:
    return [one["step"] for one in found if one["kind"] == "load" and one["round"] == 1]


def test_it_doubles_until_two_steps_in_a_row_bring_less_than_a_tenth() -> None:
    found = points(asked())
    assert climbed(found) == [1, 2, 4, 8, 16, 32]
    assert ramp.knee(found) == 8


def test_further_rounds_measure_the_same_steps_and_last_the_prompts_alone_at_the_knee() -> None:
    found = points(asked(rounds=2))
    order = [(one["kind"], one["round"]) for one in found]
    assert order == [("load", 1)] * 6 + [("load", 2)] * 6 + [("prefill", 1), ("prefill", 2)]
    assert {one["step"] for one in found[12:]} == {8}


def test_steps_that_are_named_are_all_measured() -> None:
    assert climbed(points(asked(steps=(64, 3, 3, 16, 128)))) == [3, 16, 64, 128]


def test_the_concurrency_that_was_planned_for_is_a_step() -> None:
    assert climbed(points(asked(also=5, most=8))) == [1, 2, 4, 5, 8]


def test_more_users_than_are_answered_end_the_climb_and_are_no_knee() -> None:
    found = points(asked(), failing=4)
    assert climbed(found) == [1, 2, 4]
    assert [one["step"] for one in found if one["round"] == 2][:2] == [1, 2]
    assert ramp.knee(found) == 2
    told = result(asked(), failing=4)
    assert "requests failed at 4 users" in reported.line(told)
    assert "Service Unavailable" in page(told)


def test_a_whole_ramp_goes_no_further() -> None:
    assert ramp.next_point(points(asked()), asked()) is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"steps": (0, 4)}, "benchmark_ramp_users"),
        ({"rounds": 0}, "benchmark_ramp_rounds"),
        ({"output_tokens": 1}, "length of an answer"),
        ({"slo": {"ttft_ms": -1.0}}, "benchmark_slo"),
    ],
)
def test_a_ramp_without_work_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ProcessError, match="too small") as refused:
        ramp.check(asked(**wrong), "chat")
    assert named in str(refused.value)
    ramp.check(asked(), "chat")


def test_the_client_is_asked_for_goodput_where_limits_are_stated() -> None:
    assert "--goodput" not in ramp.options({"ttft_ms": 0.0})
    told = ramp.options({"ttft_ms": 500.0, "tpot_ms": 0.0, "e2e_ms": 2500.5})
    assert told[told.index("--goodput") :] == ["--goodput", "ttft:500", "e2el:2500.5"]


# By hand: $3.60 an hour is $0.001 a second. 2 requests a second are 0.5 s or $0.0005 each, of 100
# tokens in and 50 out. Prompts alone, 8 a second, take 0.125 s each: a quarter, $0.000125. So a
# million in is 0.000125 / 100 * 1,000,000 = $1.25, a million out 0.000375 / 50 * 1,000,000 = $7.50.
LOAD = {
    "requests_per_second": 2.0,
    "input_tokens_per_second": 200.0,
    "output_tokens_per_second": 100.0,
}


def test_the_prices_of_tokens_in_and_out_are_those_computed_by_hand() -> None:
    found = split(3.6, LOAD, {"requests_per_second": 8.0})
    assert found["usd_per_request"] == pytest.approx(0.0005)
    assert found["usd_per_million_input_tokens"] == pytest.approx(1.25)
    assert found["usd_per_million_output_tokens"] == pytest.approx(7.50)
    both = 100 * 1.25 + 50 * 7.50
    assert both / 1_000_000 == pytest.approx(found["usd_per_request"])


def test_the_prices_that_the_documentation_computes_by_hand_are_those_of_the_code() -> None:
    shown = (Path(__file__).parents[3] / "docs/benchmark.md").read_text()
    # That of the picture: 64 tokens in and 16 out.
    pictured = {
        "requests_per_second": 2.35396,
        "input_tokens_per_second": 64 * 2.35396,
        "output_tokens_per_second": 16 * 2.35396,
    }
    for found, form in (
        (split(3.6, LOAD, {"requests_per_second": 8.0}), "**${:.2f}** for a million"),
        (split(0.5, pictured, {"requests_per_second": 3.87316}), "x 1,000,000 = ${:.3f} "),
    ):
        for side in ("input", "output"):
            assert form.format(found[f"usd_per_million_{side}_tokens"]) in shown
    both = per_million(3.6, LOAD)
    assert f"300 tokens/s here, ${both['usd_per_million_tokens']:.2f}" in shown
    assert f"100 tokens/s, ${both['usd_per_million_output_tokens_alone']:.0f})" in shown


def test_prompts_that_take_as_long_as_requests_give_no_split() -> None:
    found = split(3.6, LOAD, {"requests_per_second": 2.0})
    assert found["usd_per_million_output_tokens"] is None
    assert "noise" in found["why"]


def test_an_engine_pays_for_its_ranks_of_a_host_and_the_inventory_goes_before_the_list() -> None:
    big = {
        "hosts": ["n1", "n2"],
        "ranks": [{"host": "n1"}] * 6 + [{"host": "n2"}] * 8,
    }
    small = {"hosts": ["n1"], "ranks": [{"host": "n1"}] * 2}
    hosts = {"n1": {"given": "16", "listed": 99.0}, "n2": {"given": 0, "listed": 24.0}}
    whole = [big, small]
    assert engine_price(big, whole, hosts)["usd_per_hour"] == 16 * 6 / 8 + 24
    assert engine_price(small, whole, hosts)["usd_per_hour"] == 16 * 2 / 8
    assert engine_price(big, whole, hosts)["hosts"][1]["source"] == "the provider's list"
    unknown = engine_price(big, whole, {"n1": hosts["n1"]})
    assert unknown == {"usd_per_hour": None, "why": "the price of n2 is not known"}


def test_prices_are_read_from_the_inventory_and_from_what_the_provider_lists() -> None:
    from action_plugins.ramp_report import _prices

    listed = {
        "a": {"benchmark_usd_per_hour": 2},
        "b": {"provision_machine": {"usd_per_hour": 3.29}},
    }
    found = _prices({"groups": {"gpu": ["a", "b"]}, "hostvars": listed})
    engine = {"hosts": ["a", "b"], "ranks": [{"host": "a"}, {"host": "b"}]}
    assert engine_price(engine, [engine], found)["usd_per_hour"] == pytest.approx(5.29)


def test_no_price_is_made_up() -> None:
    told = result(asked(), price={"usd_per_hour": None, "why": "the price of n1 is not known"})
    assert told["cost"] is None
    assert "no cost: the price of n1 is not known" in reported.line(told)
    assert "no price" in page(told) and "$" not in page(told)
    rows = list(csv.DictReader(io.StringIO(reported.as_csv(told))))
    assert {row["usd_per_million_tokens"] for row in rows} == {""}


def test_goodput_is_how_many_users_are_within_the_limits() -> None:
    limits = {"ttft_ms": 500.0, "tpot_ms": 0.0, "e2e_ms": 0.0}
    told = result(asked(slo=limits))
    # Six seats: beyond them no request of this engine is in time.
    assert told["goodput"]["step_within"] == 4
    assert told["goodput"]["slo"] == {"ttft_ms": 500.0}
    assert result(asked())["goodput"] is None


@pytest.mark.parametrize(("said", "inside"), [(32, True), (64, None)])
def test_the_planned_rate_stands_beside_the_measured_where_the_load_is_the_same(
    said: int, inside: bool | None
) -> None:
    estimate = {"concurrency": 4.0, "input_tokens": 64, "output_tokens": said}
    estimate["output_tokens_per_second"] = [90, 120, 160]
    told = result(asked(), engine={**ENGINE, "estimate": estimate})
    assert told["planned"]["inside"] is inside
    assert told["planned"]["measured_output_tokens_per_second"] == (128 if inside else None)
    assert ("planned 120 (90 to 160) at 4, 128 measured" in reported.line(told)) == bool(inside)
    assert ("inside that range" in page(told)) == bool(inside)


def test_one_data_rank_that_is_measured_alone_has_its_part_of_the_price() -> None:
    ranks = [{"rank": number, "host": "n1", "device": number} for number in range(4)]
    layout = {"data": 2, "tensor": 2}
    engine = {**ENGINE, "ranks": ranks, "layout": layout, "ports": {"worker_first": 1}}
    estimate = {"concurrency": 4.0, "input_tokens": 64, "output_tokens": 32}
    estimate["output_tokens_per_second"] = [90, 120, 160]
    told = result(asked(), engine={**engine, "estimate": estimate})
    assert (told["ranks"], told["price"]["usd_per_hour"]) == (2, 1.8)
    assert told["planned"] is None
    assert "chat, rank 0 of 2 data ranks alone: knee" in reported.line(told)
    assert "rank 0 of 2 data ranks alone" in page(told)


def test_every_round_is_a_row_of_the_table() -> None:
    rows = list(csv.DictReader(io.StringIO(reported.as_csv(result(asked())))))
    assert len(rows) == 7 * 3
    first = rows[0]
    assert (first["kind"], first["users"], first["round"]) == ("load", "1", "1")
    assert first["ttft_ms_p99"] and first["itl_ms_p50"] and first["e2e_ms_p90"]
    second = rows[3]
    assert (second["input_tokens_per_second_per_user"], second["users"]) == ("64.0", "2")
    assert second["input_tokens_per_second_per_rank"] == "128.0"
    assert (second["running_most"], second["front_end_busy"]) == ("2.0", "0.2")
    # 96 tokens a second at $0.001 a second.
    assert float(first["usd_per_million_tokens"]) == pytest.approx(0.001 / 96 * 1_000_000)


def test_names_are_text_on_the_page() -> None:
    told = {**result(asked()), "model": FORMULA, "engine": FORMULA}
    assert "<script>" not in page(told)


def test_the_page_says_when_others_used_the_engine() -> None:
    told = result(asked())
    assert "Others used the engine" not in page(told)
    for step in told["steps"]:
        step["figures"]["other_requests"]["most"] = 7.0
    assert "Others used the engine" in page(told)


@pytest.mark.parametrize(
    ("amount", "shown"), [(10.416, "$10.42"), (2.6, "$2.60"), (0.651, "$0.651"), (0.5, "$0.500")]
)
def test_a_price_is_not_shorter_than_its_neighbours(amount: float, shown: str) -> None:
    assert reported.dollars(amount) == shown


def test_where_the_last_step_is_the_best_there_is_no_knee_yet() -> None:
    told = result(asked(steps=(1, 4)))
    assert "chat: no knee up to 4 users, " in reported.line(told)
    assert told["bottleneck"]["name"] == NOT_REACHED
    shown = page(told)
    assert "<h1>chat: no knee up to 4 users</h1>" in shown
    assert "Output at the last step" in shown
    assert "at the knee" not in shown and ">knee<" not in shown
    assert "<h1>chat: the knee is at 8 users</h1>" in page(result(asked()))


def test_prices_of_an_hour_are_explained_on_the_page() -> None:
    assert "n1 costs $3.60 an hour (benchmark_usd_per_hour)" in page(result(asked(), price=PRICE))
