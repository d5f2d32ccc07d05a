"""Work in children: what they told, and how each that did not come back is spoken of."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest

from vllm_ansible.node.forked import Tell, run_each


def test_each_tells_its_own_and_all_run_at_once() -> None:
    # Nobody gets past it alone.
    meeting = multiprocessing.Barrier(4)

    def work(number: int, tell: Tell) -> None:
        tell("stage", "meet")
        meeting.wait(15)
        tell("number", number)

    told = run_each([lambda tell, n=n: work(n, tell) for n in range(4)], 20, OSError)
    assert told == [{"number": n} for n in range(4)]


def test_one_that_hangs_is_ended_and_what_it_told_is_kept() -> None:
    def work(tell: Tell) -> None:
        tell("memory", {"wrong_words": 0})
        tell("stage", "matmul")
        time.sleep(60)

    (told,) = run_each([work], 1.5, OSError)
    assert told == {
        "memory": {"wrong_words": 0},
        "stage": "matmul",
        "error": "no answer within 1.5 seconds at matmul; it was ended",
    }


def test_one_that_dies_is_told_by_its_signal() -> None:
    def work(tell: Tell) -> None:
        tell("stage", "start")
        os.kill(os.getpid(), signal.SIGKILL)

    (told,) = run_each([work], 20, OSError)
    assert told == {"stage": "start", "error": "the process that measured was ended by signal 9"}


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError("no such thing"), "no such thing"), (ValueError("ours"), "Traceback")],
)
def test_what_was_foreseen_is_a_sentence_and_the_rest_a_traceback(
    error: Exception, words: str
) -> None:
    def work(tell: Tell) -> None:
        raise error

    (told,) = run_each([work], 20, OSError)
    assert told["error"].startswith(words)


def test_a_long_answer_arrives_whole() -> None:
    (told,) = run_each([lambda tell: tell("text", "x" * 1_000_000)], 20, OSError)
    assert len(told["text"]) == 1_000_000
