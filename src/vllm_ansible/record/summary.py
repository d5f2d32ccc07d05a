"""What a reader of the report wants to know, gathered from a run's events and its plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import events

PLAN = "plan.json"


@dataclass(slots=True)
class Stage:
    """One stage: when it ran, how it ended, what its gates found."""

    name: str
    start: float
    seconds: float = 0.0
    ok: bool | None = None
    tasks: int = 0
    changed: int = 0
    evidence: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Summary:
    """A run, as the report tells it; what is missing was not measured."""

    run: str = ""
    cluster: str = ""
    inventory: str = ""
    command: str = ""
    directory: str = ""
    limit: str = ""
    check: bool = False
    began: datetime | None = None
    seconds: float = 0.0
    ended: bool = False
    interrupted: bool = False
    ok: bool = False
    changed: int = 0
    stages: list[Stage] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    slowest: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> str:
        """One word or two for how the run ended."""
        if not self.ended:
            return "not finished"
        if self.interrupted:
            return "interrupted"
        if not self.ok:
            return "failed"
        return "checked" if self.check else "done"

    def engines(self, gate: str) -> dict[str, dict[str, Any]]:
        """Return what a gate found, by the name of the engine."""
        found = self.values.get(gate, {}).get("engines")
        return {
            str(engine.get("name", "")): dict(engine)
            for engine in (found if isinstance(found, list) else [])
            if isinstance(engine, Mapping)
        }


def summarise(run_dir: str | Path) -> Summary:
    """Read the record of a run, whole or interrupted."""
    summary = gather(events.read(run_dir))
    try:
        plan = json.loads((Path(run_dir) / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        plan = {}
    summary.plan = plan if isinstance(plan, dict) else {}
    summary.run = summary.run or Path(run_dir).resolve().name
    return summary


def gather(record: Iterable[Mapping[str, Any]]) -> Summary:
    """Go through the events once, in order."""
    summary = Summary()
    tasks: list[dict[str, Any]] = []
    last = None
    for event in record:
        moment = _moment(event.get("time"))
        last = moment or last
        summary.began = summary.began or moment
        offset = _seconds(summary.began, moment)
        match event["event"]:
            case "run_start":
                _start(summary, event)
            case "stage_start":
                summary.stages.append(Stage(str(event.get("stage", "")), offset))
            case "stage_end":
                for stage in reversed(summary.stages):
                    if stage.name == event.get("stage"):
                        stage.seconds = float(event.get("seconds") or 0)
                        stage.ok = bool(event.get("ok"))
                        break
            case "task":
                _task(summary, event)
                tasks.append(dict(event))
            case "evidence":
                _evidence(summary, event)
            case "failure":
                summary.failures.append(dict(event))
            case "warning":
                summary.warnings.append(dict(event))
            case "run_end":
                summary.ended = True
                summary.ok = bool(event.get("ok"))
                summary.interrupted = bool(event.get("interrupted"))
                summary.seconds = float(event.get("seconds") or 0)
                summary.changed = int(event.get("changed") or 0)
    if not summary.ended:
        summary.seconds = _seconds(summary.began, last)
        if summary.stages and summary.stages[-1].ok is None:
            summary.stages[-1].seconds = summary.seconds - summary.stages[-1].start
    summary.slowest = _slowest(tasks)
    return summary


def _start(summary: Summary, event: Mapping[str, Any]) -> None:
    for name in ("run", "cluster", "inventory", "command", "directory", "limit"):
        setattr(summary, name, str(event.get(name) or ""))
    summary.check = bool(event.get("check"))


def _task(summary: Summary, event: Mapping[str, Any]) -> None:
    changed = event.get("status") == "changed"
    if summary.stages:
        summary.stages[-1].tasks += 1
        summary.stages[-1].changed += changed
    if changed:
        name = f"{event.get('stage')}: {_short(event)}"
        summary.changes.setdefault(name, []).append(str(event.get("host")))


def _evidence(summary: Summary, event: Mapping[str, Any]) -> None:
    text = str(event.get("summary") or "")
    if summary.stages and text and text not in summary.stages[-1].evidence:
        summary.stages[-1].evidence.append(text)
    values = event.get("values")
    if isinstance(values, Mapping):
        _merge(summary.values.setdefault(str(event.get("gate") or ""), {}), values)


def _merge(known: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Add what one host measured to what others did: lists grow, the rest is replaced."""
    for name, value in values.items():
        if isinstance(value, list) and isinstance(known.get(name), list):
            known[name] += [item for item in value if item not in known[name]]
        else:
            known[name] = list(value) if isinstance(value, list) else value


def _slowest(tasks: list[dict[str, Any]], count: int = 6) -> list[dict[str, Any]]:
    """Return the tasks that took longest, each with its slowest host."""
    longest: dict[tuple[str, str], dict[str, Any]] = {}
    for task in tasks:
        key = str(task.get("stage")), _short(task)
        seconds = float(task.get("seconds") or 0)
        if key not in longest or seconds > longest[key]["seconds"]:
            longest[key] = {
                "stage": key[0],
                "task": key[1],
                "host": task.get("host"),
                "seconds": seconds,
            }
    ordered = sorted(longest.values(), key=lambda one: -one["seconds"])
    return [one for one in ordered[:count] if one["seconds"] >= 0.5]


def _short(event: Mapping[str, Any]) -> str:
    """Return a task's name without the role that Ansible puts before it."""
    return str(event.get("task") or "").split(" : ")[-1]


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _seconds(began: datetime | None, moment: datetime | None) -> float:
    return (moment - began).total_seconds() if began and moment else 0.0
