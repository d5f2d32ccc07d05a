"""What machines have cost, from the launch that their tag tells until nobody lists them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ansible.provision.fleet import Machine
from vllm_ansible.provision.ledger import Ledger

HOUR = 3600.0
ONE = Machine("a", 0, "active", "gpu_1x_gh200", "us-east-3", 149, "l", 1000.0)
TWO = replace(ONE, id="b", slot=1, since=1000.0 + HOUR)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "r1" / "ledger.json")


def test_a_machine_costs_from_its_launch_on(ledger: Ledger) -> None:
    ledger.see([ONE], 1000.0 + 600)
    assert ledger.cents(1000.0 + 2 * HOUR) == pytest.approx(2 * 149)


def test_one_that_is_ending_costs_no_more(ledger: Ledger) -> None:
    ledger.see([ONE], 1000.0)
    ledger.see([replace(ONE, status="terminating")], 1000.0 + HOUR)
    ledger.see([], 1000.0 + 5 * HOUR)
    assert ledger.cents(1000.0 + 9 * HOUR) == pytest.approx(149)


def test_machines_that_were_replaced_are_counted_too(ledger: Ledger) -> None:
    ledger.see([ONE], 1000.0)
    ledger.see([TWO], 1000.0 + HOUR)
    assert ledger.cents(1000.0 + 2 * HOUR) == pytest.approx(149 + 149)


def test_one_without_the_tag_counts_from_when_it_was_seen(ledger: Ledger) -> None:
    ledger.see([replace(ONE, since=0.0)], 5000.0)
    assert ledger.cents(5000.0 + HOUR) == pytest.approx(149)


@pytest.mark.parametrize("damage", ["{", "[]", '{"a": {"slot": 0}}'])
def test_a_damaged_ledger_is_written_anew_from_what_lives(
    ledger: Ledger, tmp_path: Path, damage: str
) -> None:
    ledger.see([ONE], 1000.0)
    (tmp_path / "r1" / "ledger.json").write_text(damage)
    assert ledger.cents(2000.0) == 0
    ledger.see([ONE], 1000.0 + HOUR)
    assert ledger.cents(1000.0 + HOUR) == pytest.approx(149)


def test_a_machine_that_one_list_was_without_is_counted_all_the_same(ledger: Ledger) -> None:
    ledger.see([ONE], 1000.0)
    ledger.see([], 2000.0)
    ledger.see([ONE], 3000.0)
    assert ledger.cents_per_hour() == 149
    assert ledger.cents(1000.0 + HOUR) == pytest.approx(149)
