"""How what was seen of a rank is judged, without a clock or a network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "roles/router/files/watch"
PATIENCE = 2.5


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(PROGRAM))
    monkeypatch.delitem(sys.modules, "standing", raising=False)
    from standing import Standing  # type: ignore[import-not-found]

    return Standing()


def test_nothing_is_known_before_anything_was_proven(standing: object) -> None:
    standing.asked(0)
    assert standing.judge(PATIENCE, PATIENCE) == ""
    assert not standing.known


def test_a_question_without_an_answer_is_a_rank_that_is_down(standing: object) -> None:
    standing.asked(0)
    assert standing.judge(2.4, PATIENCE) == ""
    assert standing.judge(2.6, PATIENCE) == "no token for 2.6 s"
    standing.answered()
    assert standing.judge(2.7, PATIENCE) == ""


def test_a_count_that_grows_is_a_rank_that_computes(standing: object) -> None:
    standing.asked(0)
    for second in range(1, 20):
        standing.counted(second, second * 10)
        assert standing.judge(second, PATIENCE) == ""
    # It grows no more.
    for second in (20, 21, 22):
        standing.counted(second, 190)
    assert standing.judge(22, PATIENCE) == "no token for 3.0 s"
    standing.counted(23, 191)
    assert standing.judge(23, PATIENCE) == ""


def test_a_rank_that_keeps_no_count_is_left_to_its_health(standing: object) -> None:
    standing.asked(0)
    standing.counted(1, None)
    assert standing.judge(100, PATIENCE) == ""


def test_one_refusal_may_be_an_accident_and_two_are_none(standing: object) -> None:
    standing.asked(0)
    standing.refused("HTTP 500")
    assert standing.judge(1, PATIENCE) == ""
    standing.asked(1)
    standing.refused("HTTP 500")
    assert standing.judge(1, PATIENCE) == "HTTP 500"
    # A question that waits again proves nothing in its favour.
    standing.asked(2)
    assert standing.judge(3, PATIENCE) == "HTTP 500"
