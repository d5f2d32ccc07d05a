"""Machines at a price, by what a million tokens cost on them."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.command import NO_LAYOUT, OK, REFUSED, main
from vllm_ansible.plan.estimate.layouts.engine_set import engine_set
from vllm_ansible.plan.estimate.layouts.frontier import Point, _ticks, points, undominated
from vllm_ansible.plan.estimate.layouts.offers import offers, ranked
from vllm_ansible.problem import PlanError

from .published import CONFIGS

TWO = [
    {"machines": "2x8 H100-80", "dollars_per_hour": 48, "as_of": "2026-11-20"},
    {"name": "eight H200", "machines": "1x8 H200", "dollars_per_hour": 30, "as_of": "2026-11-21"},
    {"machines": "1x8 H100-80", "dollars_per_hour": 24, "as_of": "2026-11-20"},
]


def test_the_cheapest_comes_first_and_what_does_not_run_last(ask: Any) -> None:
    asked = ask("r1", "1x8 H200")
    found, refused = ranked(asked, offers(TWO, "offers", {}))
    assert [one.offer.name for one in found] == ["eight H200", "2x8 H100-80"]
    ((offer, why),) = refused
    assert offer.name == "1x8 H100-80" and "629 GiB" in why
    rate = answer(asked).chosen.output_rate
    low, likely, high = found[0].cost
    assert likely == pytest.approx(30 / 3600 / rate * 1e6)
    assert low < likely < high


def test_twice_the_price_is_twice_the_cost(ask: Any) -> None:
    dearer = [{**TWO[1], "dollars_per_hour": 60}, TWO[1]]
    found, _ = ranked(ask("r1", "1x8 H200"), offers(dearer, "offers", {}))
    assert [one.offer.dollars_per_hour for one in found] == [30, 60]
    assert found[1].cost[1] == pytest.approx(2 * found[0].cost[1])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "is no list of offers"),
        ([], "is no list of offers"),
        ([{"machines": "1x8 H200", "euros": 3}], "offer 1 is no offer"),
        ([{"dollars_per_hour": 3, "as_of": "2026-11-20"}], "offer 1 names no machines"),
        ([{**TWO[0], "dollars_per_hour": 0}], "dollars_per_hour is 0"),
        ([{**TWO[0], "dollars_per_hour": "24"}], "dollars_per_hour is '24'"),
        ([{**TWO[0], "dollars_per_hour": nan}], "dollars_per_hour is nan"),
        ([{**TWO[0], "dollars_per_hour": inf}], "dollars_per_hour is inf"),
        ([{**TWO[0], "name": ["a"]}], "offer 1: its name is"),
        ([TWO[0], {**TWO[1], "as_of": None}], "offer 2: as_of is None, and must be the day"),
        ([{**TWO[0], "machines": "1x8 H900"}], "accelerator 'H900' is not known"),
    ],
)
def test_what_is_no_offer_is_refused_in_one_sentence(values: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said) as refused:
        offers(values, "prices.yml", {})
    assert len(refused.value.problems) == 1


def test_a_day_that_no_month_has_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.yml").write_text("- {machines: 1x8 H200, as_of: 2026-13-40}")
    model = str(CONFIGS / "Qwen--Qwen3-8B_config.json")
    assert main([model, "--offers", str(tmp_path / "prices.yml")]) == REFUSED
    assert "is neither JSON nor YAML: month must be in" in capsys.readouterr().err


def test_the_command_prints_a_table(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text(
        "- {machines: 2x8 H100-80, dollars_per_hour: 48, as_of: 2026-11-20}\n"
        "- {machines: 1x8 H200, dollars_per_hour: 30, as_of: 2026-11-21}\n"
        "- {machines: 1x1 L4, dollars_per_hour: 1, as_of: 2026-11-21}\n"
    )
    assert main([config, "--offers", str(path)]) == OK
    told = capsys.readouterr().out.splitlines()
    assert "1x8 H200" in told[3] and "price of 2026-11-21" in told[3]
    assert told[-1].startswith("  does not run on 1x1 L4: ")
    assert main([config, "--offers", str(path), "--json"]) == OK
    rows = json.loads(capsys.readouterr().out)["offers"]
    assert rows[0]["machines"] == "1x8 H200" and "refused" in rows[-1]
    path.write_text("- {machines: 1x1 L4, dollars_per_hour: 1, as_of: 2026-11-21}\n")
    assert main([config, "--offers", str(path)]) == NO_LAYOUT


def test_offers_and_machines_are_not_asked_about_at_once(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "1x8 H200", "--offers", "prices.yml"]) == REFUSED
    assert main([config]) == REFUSED
    assert "no machines are named" in capsys.readouterr().err


def test_all_engines_of_machines_that_differ_are_paid_and_counted(ask: Any) -> None:
    mixed = [{"machines": "1x8 H200 + 2x8 H100-80", "dollars_per_hour": 78, "as_of": "2026-11-20"}]
    ((one,), _) = ranked(ask("r1", "1x8 H200"), offers(mixed, "offers", {}))
    rate = engine_set(ask("r1", "1x8 H200 + 2x8 H100-80")).output_rate.middle
    assert one.cost[1] == pytest.approx(78 / 3600 / rate * 1e6)
    assert one.layout.count(" and ") == 1


def test_only_points_that_nothing_beats_are_on_the_frontier(ask: Any) -> None:
    asked = ask("llama-8b", "1x1 H200")
    two = [
        {"name": "H200", "machines": "1x1 H200", "dollars_per_hour": 4, "as_of": "2026-11-20"},
        {"name": "dear", "machines": "1x1 H200", "dollars_per_hour": 8, "as_of": "2026-11-20"},
    ]
    found = points(asked, offers(two, "offers", {}))
    assert {point.offer for point in undominated(found)} == {"H200"}
    by_load = {point.requests: point for point in found if point.offer == "H200"}
    assert by_load[1].per_user > by_load[64].per_user
    assert by_load[64].per_dollar > by_load[1].per_dollar
    single = by_load[1]
    assert single.per_dollar == pytest.approx(single.per_user * 3600 / 4)
    worse = Point("x", 1, "TP1", single.per_user - 1, single.per_dollar - 1)
    assert worse not in undominated([*found, worse])


def test_the_command_draws_the_frontier(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices, drawn = tmp_path / "prices.json", tmp_path / "frontier.svg"
    prices.write_text(json.dumps([{**TWO[1], "as_of": "2026-11-21"}, TWO[2]]))
    assert main([config, "--offers", str(prices), "--svg", str(drawn)]) == OK
    capsys.readouterr()
    page = ElementTree.fromstring(drawn.read_text(encoding="utf-8"))  # noqa: S314 our own
    words = [one.text for one in page.iter() if one.text]
    # What does not run is not drawn.
    assert "eight H200" in words and "1x8 H100-80" not in words
    assert "output tokens for a dollar" in words


@pytest.mark.parametrize("most", [0.9, 7.3, 92, 2_207_511])
def test_axes_have_round_numbers(most: float) -> None:
    ticks = _ticks(most)
    assert ticks[0] == 0 and ticks[-1] <= most < 2 * ticks[-1]
    assert 3 < len(ticks) < 9
    assert f"{ticks[1]:e}"[0] in "125"
