"""Run a site, a stage or a verb from Python, and watch it as typed events."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .events import (
    AnyEvent,
    Event,
    Evidence,
    Failure,
    Progress,
    RunEnded,
    RunStarted,
    StageEnded,
    StageStarted,
    TaskResult,
    Warned,
)
from .follow import follow
from .outcome import Collector, Endpoint, Outcome, RefusedInput, RunFailure, conclude
from .process import AnsibleRun
from .request import Request, check_request
from .stop import Cancel

__all__ = [
    "AnyEvent",
    "Endpoint",
    "Event",
    "Evidence",
    "Failure",
    "Outcome",
    "Progress",
    "RefusedInput",
    "RunEnded",
    "RunFailure",
    "RunStarted",
    "StageEnded",
    "StageStarted",
    "TaskResult",
    "Warned",
    "run",
    "stream",
]


def run(
    inventory: str | Path,
    playbook: str = "site.yml",
    *,
    tags: str | Sequence[str] = (),
    limit: str | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    check: bool = False,
    on_event: Callable[[AnyEvent], object] | None = None,
    cancel: Cancel | None = None,
    checkout: str | Path | None = None,
) -> Outcome:
    """Run a playbook to its end and return its outcome.

    RefusedInput is raised before anything runs, RunFailure when the run fails or is cancelled.
    """
    events = stream(
        inventory,
        playbook,
        tags=tags,
        limit=limit,
        extra_vars=extra_vars,
        check=check,
        cancel=cancel,
        checkout=checkout,
    )
    # An exception from on_event must stop the run at once, not when the generator is collected.
    try:
        while True:
            event = next(events)
            if on_event:
                on_event(event)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    finally:
        events.close()


def stream(
    inventory: str | Path,
    playbook: str = "site.yml",
    *,
    tags: str | Sequence[str] = (),
    limit: str | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    check: bool = False,
    cancel: Cancel | None = None,
    checkout: str | Path | None = None,
) -> Generator[AnyEvent, None, Outcome]:
    """Yield the events of a run as they happen; the generator's value is the outcome.

    Closing the generator stops the run, as setting `cancel` does.
    """
    request = check_request(
        inventory,
        playbook,
        tags=tags,
        limit=limit,
        extra_vars=extra_vars,
        check=check,
        checkout=checkout,
    )
    return _stream(request, cancel)


def _stream(request: Request, cancel: Cancel | None) -> Generator[AnyEvent, None, Outcome]:
    collector = Collector()
    with tempfile.TemporaryDirectory(prefix="vllm-ansible-") as data_dir:
        ansible = AnsibleRun(request, Path(data_dir))
        ansible.start()
        try:
            for event in follow(ansible, cancel):
                collector.add(event)
                yield event
        finally:
            ansible.stop()
        return conclude(
            collector,
            run_dir=ansible.run_dir(),
            exit_code=ansible.exit_code,
            cancelled=ansible.interrupted,
            output=ansible.output(),
            command=request.shown(),
        )
