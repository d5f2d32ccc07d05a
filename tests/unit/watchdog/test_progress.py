"""How what was seen of an engine is judged, without a clock or a network."""

from __future__ import annotations

import pytest

from vllm_ansible.node.watchdog.progress import BUSY_SECONDS, MOST_PATIENCE_SECONDS, Progress

PATIENCE = 20.0


@pytest.fixture
def progress() -> Progress:
    """Return what is known of an engine that answered at 0 and has had nothing to do since."""
    one = Progress(PATIENCE)
    one.asked(-1)
    one.answered(0)
    one.looked(0, "tokens 1", 0, False)
    return one


def test_nothing_is_said_of_an_engine_that_has_never_answered() -> None:
    starting = Progress(PATIENCE)
    starting.looked(0, "tokens 0", 0, False)
    starting.asked(1)
    assert starting.silence(10_000, busy=False) == 0


def test_one_that_is_idle_is_asked_and_one_that_works_is_not(progress: Progress) -> None:
    assert not progress.wants_question(6)
    assert progress.wants_question(8)
    progress.looked(8, "tokens 2", 1, False)
    assert not progress.wants_question(14)


def test_a_question_without_an_answer_and_counts_that_stand_still_are_a_hang(
    progress: Progress,
) -> None:
    progress.asked(8)
    progress.looked(27, "tokens 1", 1, False)
    assert progress.silence(27, busy=False) == 0
    assert progress.silence(29, busy=False) == 21
    progress.answered(30)
    assert progress.silence(31, busy=False) == 0


def test_a_question_that_waits_in_a_queue_is_no_hang_while_counts_move(progress: Progress) -> None:
    progress.asked(8)
    for second in range(10, 200, 10):
        progress.looked(second, f"tokens {second}", 9, False)
        assert progress.silence(second + 5, busy=False) == 0
    assert progress.silence(190 + 21, busy=False) == 21


def test_one_that_compiles_is_given_minutes_and_not_for_ever(progress: Progress) -> None:
    progress.asked(8)
    assert progress.silence(8 + BUSY_SECONDS, busy=True) == 0
    assert progress.silence(9 + BUSY_SECONDS, busy=True) == BUSY_SECONDS + 1


def test_one_that_was_slow_and_came_back_may_be_so_again_within_limits(progress: Progress) -> None:
    progress.asked(8)
    progress.answered(38)
    progress.asked(50)
    assert progress.silence(50 + 59, busy=False) == 0
    assert progress.silence(50 + 61, busy=False) == 61
    progress.answered(50 + 1000)
    progress.asked(2000)
    assert progress.silence(2000 + MOST_PATIENCE_SECONDS + 1, busy=False) > 0


def test_what_a_stopped_process_took_teaches_nothing(progress: Progress) -> None:
    progress.asked(8)
    progress.excused = True
    progress.answered(500)
    progress.asked(510)
    assert progress.silence(531, busy=False) == 21


def test_one_that_sleeps_or_keeps_no_counts_is_left_alone(progress: Progress) -> None:
    progress.looked(9, "tokens 1", 0, True)
    assert not progress.wants_question(1000)
    progress.looked(1000, None, 0, False)
    progress.asked(1000)
    assert progress.silence(2000, busy=False) == 0


def test_a_server_that_was_started_anew_is_starting(progress: Progress) -> None:
    progress.asked(8)
    progress.restarted(9)
    assert progress.silence(1000, busy=False) == 0
