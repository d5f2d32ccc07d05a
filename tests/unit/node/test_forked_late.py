"""Work in children whose time is over before anybody has read what they told."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ansible.node import forked
from vllm_ansible.node.forked import Tell, run_each


def test_who_was_given_no_time_takes_what_has_come_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(selectors.DefaultSelector):
        """One whose process goes on once its child has ended, and all time is over."""

        def register(self, *arguments: Any) -> selectors.SelectorKey:
            pipe = select.poll()
            pipe.register(arguments[0], select.POLLHUP)
            assert pipe.poll(120_000)
            time.sleep(0.2)
            return super().register(*arguments)

    monkeypatch.setattr(forked.selectors, "DefaultSelector", Late)
    assert run_each([lambda tell: tell("number", 1)], 0.1, OSError) == [{"number": 1}]


def test_one_that_never_stops_to_write_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(tell: Tell) -> None:
        # It ends by itself where nobody ends it: the test fails then, and does not hang.
        end = time.monotonic() + 15
        while time.monotonic() < end:
            tell("stage", "write")

    read = os.read
    # So slowly that there is always more.
    monkeypatch.setattr(os, "read", lambda descriptor, size: read(descriptor, min(size, 1)))
    (told,) = run_each([work], 1.0, OSError)
    assert told.get("error", "").startswith("no answer within 1 seconds at ")


def test_those_that_do_not_even_end_when_they_are_killed_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As all devices of a host may hang in one driver."""
    reap, children, slept = os.waitpid, set(), [0.0]

    def stuck(child: int, _: int) -> tuple[int, int]:
        children.add(child)
        return 0, 0

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + slept[0], sleep=sleep)
    monkeypatch.setattr(forked, "time", clock)
    monkeypatch.setattr(os, "waitpid", stuck)
    told = run_each([lambda _: time.sleep(600)] * 8, 0.2, OSError)
    for child in children:
        os.kill(child, signal.SIGKILL)
        reap(child, 0)
    assert all("does not even end when it is killed" in one["error"] for one in told)
    assert slept[0] <= 6
