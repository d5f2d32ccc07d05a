"""Work in children whose time is over before anybody has read what they told."""

from __future__ import annotations

import os
import selectors
import time
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
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            time.sleep(0.2)
            return super().register(*arguments)

    monkeypatch.setattr(forked.selectors, "DefaultSelector", Late)
    assert run_each([lambda tell: tell("number", 1)], 0.1, OSError) == [{"number": 1}]


def test_one_that_never_stops_to_write_is_ended() -> None:
    def work(tell: Tell) -> None:
        while True:
            tell("stage", "write")

    (told,) = run_each([work], 1.0, OSError)
    assert told["error"].startswith("no answer within 1 seconds at ")
