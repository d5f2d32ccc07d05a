"""Progress of one long task, shown and recorded by the worker that watches it."""

from __future__ import annotations

import time
from typing import Any

from .. import terminal as console
from . import events

# A log of CI stays readable with a line now and then; a terminal line may move.
_PLAIN_INTERVAL_SECONDS = 15.0
_TERMINAL_INTERVAL_SECONDS = 0.5


class Progress:
    """One progress line for the whole cluster.

    `display` is Ansible's Display, whose lines reach the console of the run from any worker.
    """

    def __init__(self, display: Any, stage: str, task: str) -> None:
        self._display = display
        self._stage = stage
        self._task = task
        self._shown = ""
        self._phase = ""
        self._at = float("-inf")

    def show(
        self,
        text: str,
        done: float | None = None,
        total: float | None = None,
        unit: str = "",
        phase: str = "",
    ) -> None:
        """Say how far the task is, unless nothing new is to be said or it was said just now.

        A new `phase` is always shown, and so is the end.
        """
        line = console.progress_line(self._stage, text, done, total, unit)
        interval = _TERMINAL_INTERVAL_SECONDS if console.is_terminal() else _PLAIN_INTERVAL_SECONDS
        finished = total is not None and done == total
        soon = time.monotonic() - self._at < interval
        if line == self._shown or (soon and phase == self._phase and not finished):
            return
        self._shown, self._phase, self._at = line, phase, time.monotonic()
        self._print(line)
        directory = events.current()
        if directory:
            events.append(
                directory,
                {
                    "event": "progress",
                    "stage": self._stage,
                    "task": self._task,
                    "text": text,
                    "done": done,
                    "total": total,
                    "unit": unit,
                },
            )

    def _print(self, line: str) -> None:
        if console.is_terminal():
            # The cursor returns to the first column, so that any other line writes over this one.
            self._display.display(f"{console.CLEAR}{line}\r", newline=False, screen_only=True)
        else:
            self._display.display(line)
