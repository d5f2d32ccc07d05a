"""What a run comes to: an outcome, or a failure that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .events import AnyEvent, Evidence, Failure, RunEnded, StageEnded, StageStarted, TaskResult


class RefusedInput(ValueError):
    """What was asked cannot be run, and no machine was touched."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model answers, and the file that holds the key it asks for."""

    url: str
    model: str
    api_key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that ended well."""

    ok: bool
    changed: int
    run_dir: Path
    endpoints: list[Endpoint] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)


class RunFailure(Exception):
    """A run that did not reach its end: which stage, on which host, why, and what mends it."""

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        host: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        cause: str | None = None,
        fix: str | None = None,
        command: str | None = None,
        run_dir: Path | None = None,
        failures: Sequence[Failure] = (),
        cancelled: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        self.host = host
        self.expected = expected
        self.found = found
        self.where = where
        self.cause = cause
        self.fix = fix
        self.command = command
        self.run_dir = run_dir
        self.failures = tuple(failures)
        self.cancelled = cancelled

    def as_dict(self) -> dict[str, Any]:
        """Return everything it says, as plain values."""
        plain = {key: value for key, value in vars(self).items() if key != "failures"}
        return {**plain, "failures": [asdict(failure) for failure in self.failures]}

    @classmethod
    def of(cls, failure: Failure, failures: Sequence[Failure], run_dir: Path | None) -> RunFailure:
        """Return the failure of a run that `failure` explains best."""
        return cls(
            failure.message,
            stage=failure.stage,
            host=failure.host,
            expected=failure.expected,
            found=failure.found,
            where=failure.where,
            cause=failure.cause,
            fix=failure.fix,
            command=failure.command,
            run_dir=run_dir,
            failures=failures,
        )


class Collector:
    """Gather from the events of a run what its outcome needs."""

    def __init__(self) -> None:
        self.ended: RunEnded | None = None
        self.evidence: list[Evidence] = []
        self.failures: list[Failure] = []
        self.tasks = 0
        self.stage: str | None = None

    def add(self, event: AnyEvent) -> None:
        """Take one event into account."""
        match event:
            case RunEnded():
                self.ended = event
            case Evidence():
                self.evidence.append(event)
            case Failure():
                self.failures.append(event)
            case TaskResult():
                self.tasks += 1
            case StageStarted():
                self.stage = event.stage
            case StageEnded(ok=True):
                # What failed in a stage that went well was rescued there.
                self.failures = [f for f in self.failures if f.stage != event.stage]

    def explanation(self) -> Failure | None:
        """Return the first failure that knows its cause or its fix, or else the first."""
        known = [failure for failure in self.failures if failure.cause or failure.fix]
        return next(iter(known or self.failures), None)


def conclude(
    collector: Collector,
    *,
    run_dir: Path | None,
    exit_code: int | None,
    cancelled: bool,
    output: str,
    command: str,
) -> Outcome:
    """Return the outcome of a run that is over, or raise its failure.

    `output` is what ansible-playbook printed: all there is when it ended before its first play.
    """
    end, why = collector.ended, collector.explanation()
    ended_well = exit_code == 0 and end is not None and end.ok
    if ended_well and collector.tasks and run_dir and end:
        return Outcome(
            ok=True,
            changed=end.changed,
            run_dir=run_dir,
            endpoints=endpoints(collector.evidence),
            evidence=collector.evidence,
        )
    if cancelled:
        raise RunFailure(
            "the run was stopped on request",
            stage=collector.stage,
            fix="run it again: what was finished is not done twice",
            command=command,
            run_dir=run_dir,
            failures=collector.failures,
            cancelled=True,
        )
    if why:
        raise RunFailure.of(why, collector.failures, run_dir)
    if ended_well:
        raise RunFailure(
            "nothing was run",
            expected="at least one task on at least one host",
            found="no host in the groups of the plays, or no play with these tags",
            fix="compare the inventory's groups and the tags with the playbook's",
            command=command,
            run_dir=run_dir,
        )
    where = "before its first play" if end is None and not collector.tasks else "without a reason"
    raise RunFailure(
        f"ansible-playbook ended {where} (exit status {exit_code})",
        stage=collector.stage,
        found=output or "no output",
        command=command,
        run_dir=run_dir,
    )


def endpoints(evidence: Sequence[Evidence]) -> list[Endpoint]:
    """Return where models answer, by the evidence of the gate `serve`, each once.

    The gate speaks again of an engine before whose ranks a router stands: its last word holds.
    """
    found = {
        name: endpoint
        for item in evidence
        if item.gate == "serve"
        for name, endpoint in _endpoints_in(item.values)
    }
    return list({endpoint.url: endpoint for endpoint in found.values()}.values())


def _endpoints_in(values: Mapping[str, Any]) -> Iterator[tuple[str, Endpoint]]:
    """Yield the endpoints of the gate's engines; a request names a model as it is served."""
    engines = values.get("engines")
    for engine in engines if isinstance(engines, list) else []:
        if isinstance(engine, dict) and engine.get("endpoint"):
            model = engine.get("served_name") or engine.get("model") or engine.get("name") or ""
            key = engine.get("api_key_file")
            name = str(engine.get("name") or engine["endpoint"])
            yield name, Endpoint(str(engine["endpoint"]), str(model), str(key) if key else None)
