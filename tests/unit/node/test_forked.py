"""Work in children: what they told, and how each that did not come back is spoken of."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from types import SimpleNamespace

import pytest

from vllm_ansible.node import forked
from vllm_ansible.node.forked import Tell, run_each


def test_each_tells_its_own_and_all_run_at_once() -> None:
    # Nobody gets past it alone.
    meeting = multiprocessing.Barrier(4)

    def work(number: int, tell: Tell) -> None:
        tell("stage", "meet")
        meeting.wait(100)
        tell("number", number)

    told = run_each([lambda tell, n=n: work(n, tell) for n in range(4)], 120, OSError)
    assert told == [{"number": n} for n in range(4)]


def test_one_that_hangs_is_ended_and_what_it_told_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read, heard = os.read, b""

    def work(tell: Tell) -> None:
        tell("memory", {"wrong_words": 0})
        tell("stage", "matmul")
        time.sleep(600)

    def hear(descriptor: int, size: int) -> bytes:
        nonlocal heard
        piece = read(descriptor, size)
        heard += piece
        return piece

    # The time is over once it has told what it tells, however late a busy machine lets it.
    later = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 200 * (b"matmul" in heard), sleep=time.sleep
    )
    monkeypatch.setattr(os, "read", hear)
    monkeypatch.setattr(forked, "time", later)
    (told,) = run_each([work], 120.0, OSError)
    assert told == {
        "memory": {"wrong_words": 0},
        "stage": "matmul",
        "error": "no answer within 120 seconds at matmul; it was ended",
    }


def test_one_that_says_nothing_is_ended() -> None:
    (told,) = run_each([lambda _: time.sleep(600)], 0.2, OSError)
    assert told == {"error": "no answer within 0.2 seconds at start; it was ended"}


def test_one_that_dies_is_told_by_its_signal() -> None:
    def work(tell: Tell) -> None:
        tell("stage", "start")
        os.kill(os.getpid(), signal.SIGKILL)

    (told,) = run_each([work], 120, OSError)
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

    (told,) = run_each([work], 120, OSError)
    assert told["error"].startswith(words)


def test_a_long_answer_arrives_whole() -> None:
    (told,) = run_each([lambda tell: tell("text", "x" * 1_000_000)], 120, OSError)
    assert len(told["text"]) == 1_000_000
