"""Turn what happens in a run into its events, knowing nothing of Ansible's objects."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import events
from .outcome import Failure


class Recorder:
    """Write the events of one run.

    A stage begins with its first task, not with its play: `--tags serve` visits every play, and
    those without a task did not happen. Plays of one stage that follow each other are one stage.
    """

    def __init__(self, directory: Path, start: Mapping[str, Any]) -> None:
        self.directory = directory
        self.stage: str | None = None
        self.changed = 0
        self.failures = 0
        self.ended = False
        self._began = time.monotonic()
        self._pending: tuple[str, float] | None = None
        self._stage_began = 0.0
        self._stage_ok = True
        self._write("run_start", run=directory.name, **start)

    def play(self, stage: str) -> None:
        """Note that a play of this stage comes next."""
        self.ended = False
        if stage == self.stage:
            self._pending = None
            return
        self._end_stage()
        self._pending = (stage, time.monotonic())

    def task_start(self) -> None:
        """Note that a task runs, and so that its stage does."""
        if self._pending is None:
            return
        self.stage, self._stage_began = self._pending
        self._pending = None
        self._stage_ok = True
        self._write("stage_start", stage=self.stage)

    def task(self, task: str, host: str, status: str, seconds: float, **more: Any) -> None:
        """Record how a task ended on one host."""
        self.changed += status == "changed"
        self._write(
            "task",
            stage=self.stage,
            task=task,
            host=host,
            status=status,
            seconds=round(seconds, 3),
            **more,
        )

    def evidence(self, host: str, evidence: Mapping[str, Any]) -> None:
        """Record what a gate measured."""
        self._write("evidence", stage=self.stage, host=host, **evidence)

    def failure(self, host: str, task: str, failure: Failure) -> None:
        """Record a failure that ends the run on its host."""
        self.failures += 1
        self._stage_ok = False
        self._write("failure", stage=self.stage, host=host, task=task, **failure.as_event())

    def warning(self, text: str, host: str | None = None) -> None:
        """Record what should worry the reader without having stopped the run."""
        stage = self._pending[0] if self._pending else self.stage
        self._write("warning", stage=stage, host=host, text=text)

    def end(self, ok: bool, hosts: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Close the stage and the run."""
        self._stage_ok = self._stage_ok and (ok or self.failures > 0)
        self._end_stage()
        self._pending = None
        self.ended = True
        self._write(
            "run_end",
            ok=ok,
            changed=self.changed,
            failures=self.failures,
            seconds=round(time.monotonic() - self._began, 3),
            hosts=hosts or {},
            **more,
        )

    def _end_stage(self) -> None:
        if self.stage is None:
            return
        seconds = round(time.monotonic() - self._stage_began, 3)
        self._write("stage_end", stage=self.stage, seconds=seconds, ok=self._stage_ok)
        self.stage = None

    def _write(self, event: str, **fields: Any) -> None:
        events.append(self.directory, {"event": event, **fields})
