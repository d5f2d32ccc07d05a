"""The events of a run, as typed values read from the lines of its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, at `time` (ISO 8601, UTC)."""

    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """The run has begun and its record exists."""

    run: str
    inventory: str
    command: str
    check: bool
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted(Event):
    """A stage has begun."""

    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded(Event):
    """A stage is over."""

    stage: str
    seconds: float
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(Event):
    """One task is over on one host: ok, changed, failed, skipped or unreachable."""

    stage: str
    task: str
    host: str
    status: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Event):
    """What a gate measured on one host, with one line for people."""

    stage: str
    host: str
    gate: str
    summary: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """How far a long task is; `done` and `total` are counted in `unit` where they are known."""

    stage: str
    task: str
    text: str
    done: float | None = None
    total: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Event):
    """Why a task failed on one host, and what mends it."""

    stage: str | None
    host: str | None
    task: str | None
    message: str
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    cause: str | None = None
    otherwise: str | None = None
    excluded: str | None = None
    fix: str | None = None
    seen: str | None = None
    command: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """What should worry the reader without having stopped the run."""

    text: str
    stage: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """The run is over."""

    ok: bool
    changed: int
    failures: int
    seconds: float


AnyEvent = (
    RunStarted
    | StageStarted
    | StageEnded
    | TaskResult
    | Evidence
    | Progress
    | Failure
    | Warned
    | RunEnded
)


def parse(line: str) -> AnyEvent | None:
    """Return the event that a line of events.jsonl holds, or None for one this version cannot read.

    A record may have been written by a newer version, so a kind that is not known is no error.
    """
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    build = _BUILDERS.get(str(record.get("event")))
    return build(record) if build else None


def _run_started(record: Mapping[str, Any]) -> RunStarted:
    return RunStarted(
        time=_text(record, "time"),
        run=_text(record, "run"),
        cluster=_words(record, "cluster"),
        inventory=_words(record, "inventory") or "",
        command=_words(record, "command") or "",
        check=bool(record.get("check")),
    )


def _stage_started(record: Mapping[str, Any]) -> StageStarted:
    return StageStarted(time=_text(record, "time"), stage=_text(record, "stage"))


def _stage_ended(record: Mapping[str, Any]) -> StageEnded:
    return StageEnded(
        time=_text(record, "time"),
        stage=_text(record, "stage"),
        seconds=_number(record, "seconds") or 0.0,
        ok=bool(record.get("ok")),
    )


def _task_result(record: Mapping[str, Any]) -> TaskResult:
    return TaskResult(
        time=_text(record, "time"),
        stage=_text(record, "stage"),
        task=_text(record, "task"),
        host=_text(record, "host"),
        status=_text(record, "status"),
        seconds=_number(record, "seconds") or 0.0,
    )


def _evidence(record: Mapping[str, Any]) -> Evidence:
    values = record.get("values")
    return Evidence(
        time=_text(record, "time"),
        stage=_text(record, "stage"),
        host=_text(record, "host"),
        gate=_text(record, "gate"),
        summary=_text(record, "summary"),
        values=values if isinstance(values, dict) else {},
    )


def _progress(record: Mapping[str, Any]) -> Progress:
    return Progress(
        time=_text(record, "time"),
        stage=_text(record, "stage"),
        task=_text(record, "task"),
        text=_text(record, "text"),
        done=_number(record, "done"),
        total=_number(record, "total"),
        unit=_words(record, "unit"),
    )


def _failure(record: Mapping[str, Any]) -> Failure:
    return Failure(
        time=_text(record, "time"),
        stage=_words(record, "stage"),
        host=_words(record, "host"),
        task=_words(record, "task"),
        message=_words(record, "msg") or "the task failed and left no message",
        expected=_words(record, "expected"),
        found=_words(record, "found"),
        where=_words(record, "where"),
        cause=_words(record, "cause"),
        otherwise=_words(record, "otherwise"),
        excluded=_words(record, "excluded"),
        fix=_words(record, "fix"),
        seen=_words(record, "seen"),
        command=_words(record, "command"),
        signature=_words(record, "signature"),
    )


def _warned(record: Mapping[str, Any]) -> Warned:
    return Warned(
        time=_text(record, "time"),
        stage=_words(record, "stage"),
        host=_words(record, "host"),
        text=_text(record, "text"),
    )


def _run_ended(record: Mapping[str, Any]) -> RunEnded:
    return RunEnded(
        time=_text(record, "time"),
        ok=bool(record.get("ok")),
        changed=int(_number(record, "changed") or 0),
        failures=int(_number(record, "failures") or 0),
        seconds=_number(record, "seconds") or 0.0,
    )


def _text(record: Mapping[str, Any], key: str) -> str:
    return _words(record, key) or ""


def _words(record: Mapping[str, Any], key: str) -> str | None:
    """Return a value as a person would read it: a list, such as a command's, is joined."""
    value = record.get(key)
    if value is None or value == "" or value == []:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return json.dumps(value)


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    return value if isinstance(value, int | float) else None


_BUILDERS: dict[str, Callable[[Mapping[str, Any]], AnyEvent]] = {
    "run_start": _run_started,
    "stage_start": _stage_started,
    "stage_end": _stage_ended,
    "task": _task_result,
    "evidence": _evidence,
    "progress": _progress,
    "failure": _failure,
    "warning": _warned,
    "run_end": _run_ended,
}
