"""What a person sees of a run: a line a stage, then what failed or where the models answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from .. import terminal as console
from ..record.redact import visible
from ..runner import (
    AnyEvent,
    Evidence,
    Outcome,
    Progress,
    RunFailure,
    RunStarted,
    StageEnded,
    StageStarted,
    TaskResult,
    Warned,
)

# Without a terminal each line stays, so progress is told at this pace.
PLAIN_PROGRESS_SECONDS = 10.0
_BOLD, _DIM, _RED, _YELLOW, _NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class LiveView:
    """Show the events of a run; on a terminal the line of the running stage is drawn in place."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._terminal = out.isatty()
        self._colours = self._terminal and not os.environ.get("NO_COLOR")
        self._failed: StageEnded | None = None
        self._begin("")

    def show(self, event: AnyEvent) -> None:
        """Take one event and show what it changes."""
        match event:
            case RunStarted():
                self._print(console.stage_line("run", f"{event.run}: {event.command}"), _DIM)
            case StageStarted():
                self._begin(event.stage)
                self._draw("running")
            case Progress():
                self._progress(event)
            case TaskResult():
                self._hosts.add(event.host)
                self._changed += event.status == "changed"
                if not self._told:
                    self._draw(event.task.split(" : ")[-1])
            case Evidence():
                self._evidence.setdefault(event.summary, []).append(event.host)
            case Warned():
                self._print(console.stage_line("warning", _on(event.host, event.text)), _YELLOW)
            case StageEnded(ok=False):
                self._failed = event
            case StageEnded():
                self._end(event)

    def outcome(self, outcome: Outcome) -> None:
        """Close with where the models answer and where the record lies."""
        for endpoint in outcome.endpoints:
            self._print(console.stage_line("endpoint", f"{endpoint.url}   {endpoint.model}"), _BOLD)
            if endpoint.api_key_file:
                self._print(console.stage_line("key", endpoint.api_key_file))
        changed = f"{outcome.changed} changed" if outcome.changed else "nothing changed"
        record = os.path.relpath(outcome.run_dir)
        self._print(console.stage_line("done", f"{changed}; its record is {record}"))

    def state(self, result: Outcome | RunFailure) -> None:
        """Show what a look at the cluster found, without the run that looked."""
        if isinstance(result, RunFailure):
            self.failure(result)
            return
        for item in result.evidence:
            self._print(console.stage_line(item.host, item.summary))
        if not result.evidence:
            self._print(console.stage_line("status", "nothing runs here"))

    def failure(self, failure: RunFailure) -> None:
        """Close with what failed, why, and what mends it."""
        stage = failure.stage or self._stage or "failed"
        ended = self._failed
        seconds = console.duration(ended.seconds) if ended and ended.stage == stage else ""
        self._print(console.stage_line(stage, _on(failure.host, failure.message), seconds), _RED)
        others = {item.host for item in failure.failures if item.host} - {failure.host}
        record = os.path.relpath(failure.run_dir) if failure.run_dir else None
        for label, text in (
            ("expected", failure.expected),
            ("found", failure.found),
            ("where", failure.where),
            ("others", ", ".join(sorted(map(str, others), key=console.by_number))),
            ("cause", failure.cause),
            ("fix", failure.fix),
            ("command", failure.command),
            ("record", record),
        ):
            if text:
                self._print(list(console.labelled(label, text, 3)))

    def close(self) -> None:
        """Leave no half-drawn line behind."""
        if self._terminal:
            self._out.write(console.CLEAR)
            self._out.flush()

    def _begin(self, stage: str) -> None:
        self._stage = stage
        self._told = ""
        self._told_at: float | None = None
        self._hosts: set[str] = set()
        self._changed = 0
        self._evidence: dict[str, list[str]] = {}

    def _progress(self, event: Progress) -> None:
        self._told = console.progress_line(
            event.stage or self._stage, event.text, event.done, event.total, event.unit or ""
        )
        if self._terminal:
            self._overwrite(self._told)
            return
        now = self._clock()
        if self._told_at is None or now - self._told_at >= PLAIN_PROGRESS_SECONDS:
            self._told_at = now
            self._print([self._told])

    def _end(self, event: StageEnded) -> None:
        first, *rest = self._summary()
        self._print(console.stage_line(event.stage, first, console.duration(event.seconds)))
        for text in rest:
            self._print(console.stage_line("", text))
        self._begin("")

    def _summary(self) -> Iterator[str]:
        """Yield the evidence, once where hosts agree; a stage without any says what it changed."""
        if not self._evidence:
            hosts = f"{len(self._hosts)} host" + ("" if len(self._hosts) == 1 else "s")
            yield f"{hosts}, {f'{self._changed} changed' if self._changed else 'nothing to change'}"
        hosts_seen = {host for hosts in self._evidence.values() for host in hosts}
        for text, names in self._evidence.items():
            alone = len(hosts_seen) == 1 or len(names) == len(hosts_seen)
            yield text if alone else f"{', '.join(names)}: {text}"

    def _draw(self, text: str) -> None:
        if self._terminal:
            self._overwrite(console.progress_line(self._stage, text, None, None, ""))

    def _overwrite(self, line: str) -> None:
        # The last column stays free: a terminal that wraps there could not be written over.
        self._out.write(console.CLEAR + self._paint(visible(line)[: console.width() - 1], _DIM))
        self._out.flush()

    def _print(self, lines: list[str], style: str = "") -> None:
        clear = console.CLEAR if self._terminal else ""
        for line in lines:
            self._out.write(f"{clear}{self._paint(visible(line), style)}\n")
        self._out.flush()

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_NORMAL}" if style and self._colours else text


def _on(host: str | None, text: str) -> str:
    return f"{host}: {text}" if host else text
