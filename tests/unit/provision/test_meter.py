"""Machines end when their time or money is over, with nobody there to end them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.fleet import Machine
from vllm_ansible.provision.lambda_settings import Settings
from vllm_ansible.provision.ledger import Ledger
from vllm_ansible.provision.limits import seconds_left, spent

from .watched import HOUR, Watched
from .world import EAST, GH200, World


def limits(**more: Any) -> Settings:
    return Settings("r1", Path("key"), "mine", (GH200,), (EAST,), 2, **more)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two machines at $1.49 an hour, one of them ended after an hour."""
    made = Ledger(tmp_path / "r1" / "lambda-ledger.json")
    one = Machine("a", 0, "active", GH200, EAST, 149, "l", 0.0 + HOUR)
    made.see([one, Machine("b", 1, "active", GH200, EAST, 149, "m", HOUR)], 1.5 * HOUR)
    made.see([one], 2 * HOUR)
    return made


@pytest.mark.parametrize(
    ("more", "words", "left"),
    [
        ({}, "", None),
        ({"max_seconds": 4 * HOUR}, "", 2 * HOUR),
        ({"max_seconds": 2 * HOUR}, "rented for 2.0 h, max_hours is 2", 0.0),
        ({"max_cents": 596}, "", HOUR),
        ({"max_cents": 447}, "have cost $4.47, max_cost is $4.47", 0.0),
        ({"max_cents": 596, "max_seconds": 9 * HOUR}, "", HOUR),
    ],
)
def test_time_counts_from_the_first_launch_and_money_over_all_machines(
    ledger: Ledger, more: dict[str, Any], words: str, left: float | None
) -> None:
    now = 3 * HOUR
    assert words in spent(ledger, limits(**more), now)
    assert bool(words) == bool(spent(ledger, limits(**more), now))
    assert seconds_left(ledger, limits(**more), now) == (
        None if left is None else pytest.approx(left)
    )


def test_nothing_is_spent_where_nothing_is_rented(tmp_path: Path) -> None:
    nothing = Ledger(tmp_path / "none.json")
    assert spent(nothing, limits(max_seconds=1, max_cents=1), 9e9) == ""
    assert seconds_left(nothing, limits(max_seconds=1, max_cents=1), 9e9) is None


@pytest.fixture
def watched(world: World) -> Iterator[Watched]:
    made = Watched(world)
    yield made
    made.end()
    made.wait()


def test_without_limits_nothing_is_watched(watched: Watched) -> None:
    assert not watched.watch()
    assert not watched.file.exists()


def test_machines_end_when_their_time_is_over(watched: Watched) -> None:
    assert watched.watch(max_hours=0.5)
    # Another run has it watched too, by the same process.
    assert watched.watch(max_hours=0.5)
    watched.wait()
    assert watched.world.slots == []
    assert "ending 2 machines: machines have been rented for 1.0 h" in watched.log
    assert watched.log.count("ending 2 machines:") == 1
    assert "2 machines ended, 0 left" in watched.log
    assert "secret" not in watched.log


def test_machines_end_within_a_second_of_a_limit_that_comes_later(watched: Watched) -> None:
    assert watched.watch(max_hours=1 + 4 / HOUR)
    watched.wait()
    assert watched.world.slots == []


def test_machines_of_others_are_left_to_their_own_watcher(watched: Watched) -> None:
    other = list(watched.world.cloud.account.instances.values())[1]
    for tag in other["tags"]:
        if tag["key"] == "vllm-ansible:owner":
            tag["value"] = "bob@elsewhere"
    assert watched.watch(max_hours=0.5)
    watched.wait()
    assert watched.world.slots == ["r1-1"]


def test_it_ends_with_the_last_machine(watched: Watched) -> None:
    fleet = watched.world.fleet()
    fleet.end(fleet.machines())
    assert watched.watch(max_hours=9)
    watched.wait()


def test_it_ends_when_its_file_says_so(watched: Watched) -> None:
    assert watched.watch(max_hours=9)
    watched.end()
    watched.wait()
    assert watched.world.slots == ["r1-0", "r1-1"]


def test_limits_that_are_removed_are_watched_no_more(watched: Watched) -> None:
    assert watched.watch(max_hours=9)
    assert not watched.watch()
    watched.wait()
    assert watched.world.slots == ["r1-0", "r1-1"]


def test_an_api_that_fails_is_asked_again(watched: Watched) -> None:
    # More than one look asks for: it is not given up.
    watched.world.cloud.key = "another"
    watched.watch(max_hours=0.5)
    until = time.monotonic() + 60
    while "no look:" not in watched.log:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert watched.world.slots == ["r1-0", "r1-1"]
    assert watched.file.exists()


@pytest.mark.parametrize("name", ["max_hours", "max_cost", "max_usd_per_hour"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "nan", "-inf"])
def test_a_limit_that_is_no_number_is_refused_by_name(
    watched: Watched, name: str, value: float | str
) -> None:
    with pytest.raises(PlanError, match=f"{name} is "):
        watched.watch(**{name: value})
