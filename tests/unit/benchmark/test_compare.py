"""Two ramps side by side: what is called worse, what is noise, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.benchmark.compare import as_text, compared
from vllm_ansible.benchmark.compare_command import main
from vllm_ansible.benchmark.difference import difference, quantile
from vllm_ansible.problem import PlanError

from .ramps import asked, noisy, result

USERS = (1, 2, 4, 8)


def measured(seed: int, single: float, of_round: float = 0.0, speed: float = 1.0) -> dict[str, Any]:
    return result(asked(steps=USERS), noise=noisy(seed, single, of_round, speed))


def verdicts(single: float, of_round: float, speed: float, pairs: int) -> list[str]:
    return [
        compared(
            measured(2 * seed, single, of_round),
            measured(2 * seed + 1, single, of_round, speed),
            0.03,
        )["verdict"]
        for seed in range(pairs)
    ]


@pytest.mark.parametrize(
    ("probability", "degrees", "published"),
    [(0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 4, 2.776), (0.975, 11, 2.201)],
)
def test_quantiles_are_those_of_the_tables(
    probability: float, degrees: int, published: float
) -> None:
    assert quantile(probability, degrees) == pytest.approx(published, abs=0.0006)


@pytest.mark.parametrize(("single", "of_round"), [(0.05, 0.0), (0.01, 0.10)])
def test_noise_is_seldom_called_a_difference(single: float, of_round: float) -> None:
    """Also noise that all steps of a round share, as of a neighbour that is busy for a minute."""
    found = verdicts(single, of_round, 1.0, 200)
    assert found.count("worse") + found.count("better") <= 20


def test_a_tenth_slower_is_worse_and_a_tenth_faster_better() -> None:
    assert verdicts(0.01, 0.0, 0.9, 40).count("worse") >= 38
    assert verdicts(0.01, 0.0, 1.1, 40).count("better") >= 38


def test_a_difference_that_noise_hides_cannot_be_told() -> None:
    assert verdicts(0.02, 0.15, 0.95, 40).count("unknown") >= 30


def test_a_difference_below_the_margin_is_the_same_even_where_it_is_sure() -> None:
    assert verdicts(0.0001, 0.0, 0.99, 10) == ["same"] * 10


def test_the_ratio_is_that_of_the_figures_beside_it() -> None:
    """Medians stood there: +42 % by them, and +10.7 % said of them."""
    for row in compared(measured(1, 0.3), measured(2, 0.3), 0.03)["judged"]:
        assert row["b"] / row["a"] == pytest.approx(row["ratio"])


def test_an_engine_that_fails_where_the_other_answered_is_worse() -> None:
    good, broken = measured(1, 0.001), result(asked(steps=USERS), failing=8)
    found = compared(good, broken, 0.03)
    assert (found["verdict"], found["fails"]) == ("worse", [8])
    assert "B fails at 8 users" in as_text(found, ("a", "b"))
    everywhere = {**broken, "steps": [{**one, "failed": 1} for one in broken["steps"]]}
    found = compared(good, everywhere, 0.03)
    assert (found["verdict"], found["fails"], found["steps"]) == ("worse", list(USERS), [])
    assert "B fails at" in as_text(found, ("a", "b"))
    # The other way round it is no fault of B's.
    assert compared(broken, good, 0.03)["fails"] == []


def test_one_round_tells_nothing_of_its_noise() -> None:
    found = difference([[1.0, 2.0]], [[0.5, 1.0], [0.5, 1.0]], 0.03, 0.05)
    assert found is not None and (found.word, round(found.ratio, 3)) == ("unknown", 0.5)


def test_another_load_is_not_compared() -> None:
    longer = result(asked(steps=USERS, output_tokens=32, input_tokens=128))
    with pytest.raises(PlanError, match="not the same load"):
        compared(measured(1, 0.01), longer, 0.03)
    with pytest.raises(PlanError, match="not the same load"):
        compared(measured(1, 0.01), result(asked(steps=(3, 5))), 0.03)


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, str]:
    """Return directories of runs: one, another of the same speed, a slow one."""
    kept = {
        "good": measured(1, 0.005),
        "again": measured(2, 0.005),
        "slow": measured(3, 0.005, speed=0.8),
        "noisy": measured(4, 0.01, of_round=0.3),
    }
    for name, one in kept.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ramp-chat.json").write_text(json.dumps(one))
    return {name: str(tmp_path / name) for name in kept}


@pytest.mark.parametrize(
    ("b", "status", "words"),
    [
        ("again", 0, "B is as A, within 3 %"),
        ("slow", 1, "B is worse than A"),
        ("noisy", 3, "unknown whether"),
    ],
)
def test_the_command_says_it_and_ends_by_it(
    runs: dict[str, str], b: str, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([runs["good"], runs[b]]) == status
    said = capsys.readouterr().out
    assert words in said and "tokens/s out" in said, said
    assert main([runs["good"], f"{runs[b]}/ramp-chat.json", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["steps"] == list(USERS)


def test_what_holds_no_ramp_is_refused(
    runs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([runs["good"], str(tmp_path)]) == 2
    assert "has no ramp" in capsys.readouterr().err
    (tmp_path / "good/ramp-code.json").write_text("{}")
    assert main([runs["good"], runs["again"]]) == 2
    assert "--engine" in capsys.readouterr().err
    assert main([runs["good"], runs["again"], "--engine", "chat"]) == 0
    assert main([f"{runs['good']}/ramp-code.json", runs["again"]]) == 2
    assert "cannot be read as a ramp" in capsys.readouterr().err
