#!/usr/bin/env python3
"""Serve a list of sites on the accelerators of this machine, and keep what each came to as JSON.

.venv/bin/python benchmarks/device/run.py -i inventories/mine benchmarks/device/two.yml --to F.json

The inventory names this machine; how its packages came there, from an index or a bundle, is not
asked. docs/device.md says what a list of runs holds.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from fault import FaultError, kill

from vllm_ansible.runner import (
    AnyEvent,
    Evidence,
    Outcome,
    RefusedInput,
    RunFailure,
    StageEnded,
    Warned,
    run,
)

# Of which gates the values are figures; of the others one line tells enough.
FIGURES = ("install", "devices", "links", "plan", "serve", "computation", "benchmark")
KNOWN = {"name", "engines", "tags", "variables", "loads", "kill", "fails", "stopped", "stranger"}


class RunsError(ValueError):
    """The list of runs cannot be carried out as it is."""


@dataclass(frozen=True)
class Run:
    """One site to serve and measure.

    loads: variables of the stage benchmark, one measurement each. kill: words in the command of
    the process that is ended then. fails: the stage that must refuse, and words it must say.
    stopped: whether what serves is stopped first, since nothing is measured beside it. stranger:
    GiB of the first device that a process of nobody holds meanwhile.
    """

    name: str
    engines: list[dict[str, Any]]
    tags: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    loads: tuple[Mapping[str, int], ...] = ()
    kill: str = ""
    fails: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False
    stranger: float = 0.0


@dataclass
class Seen:
    """What one invocation came to."""

    seconds: float = 0.0
    ok: bool = False
    changed: int | None = None
    stages: dict[str, float] = field(default_factory=dict)
    gates: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failure: dict[str, Any] = field(default_factory=dict)

    def note(self, event: AnyEvent) -> None:
        """Take one event into account."""
        match event:
            case StageEnded():
                self.stages[event.stage] = round(event.seconds, 1)
            case Evidence():
                self.lines.append(f"{event.stage}: {event.summary}")
                if event.gate in FIGURES:
                    self.gates.setdefault(event.gate, []).append(dict(event.values))
            case Warned():
                self.warnings.append(event.text)


def read(path: Path, models: str) -> list[Run]:
    """Return the runs of a file, or say what is wrong with it; models: what MODELS stands for."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    shared = found.get("shared", {}) if isinstance(found, dict) else {}
    listed = found.get("runs") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        raise RunsError(f"{path} holds no runs: expected a list `runs`, found {listed!r}")
    return [
        _run(one, shared, models, f"{path}, run {place + 1}") for place, one in enumerate(listed)
    ]


def _run(one: Any, shared: Mapping[str, Any], models: str, where: str) -> Run:
    if not isinstance(one, dict) or not {"name", "engines"} <= set(one):
        raise RunsError(f"{where}: expected name and engines, found {one!r}")
    if set(one.get("fails", ("stage", "says"))) != {"stage", "says"}:
        raise RunsError(f"{where}: fails: expected stage and says, found {one['fails']!r}")
    if unknown := set(one) - KNOWN:
        raise RunsError(f"{where}: unknown {', '.join(sorted(unknown))}; known {sorted(KNOWN)}")
    engines = [_engine(engine, shared, models) for engine in one["engines"]]
    rest = {name: value for name, value in one.items() if name != "engines"}
    return Run(**{**rest, "engines": engines, "loads": tuple(one.get("loads", ()))})


def _engine(engine: Mapping[str, Any], shared: Mapping[str, Any], models: str) -> dict[str, Any]:
    """Return an engine with what all have in common, of mappings what is its own beside it."""
    both = {**shared, **engine}
    for name in ("vllm_args", "environment"):
        both[name] = {**shared.get(name, {}), **engine.get(name, {})}
    name = str(both["model"])
    if name.startswith("MODELS/") and not models:
        raise RunsError(f"{name}: say with --models where benchmarks/device/models.py has made it")
    # Of files beside this one, such as scaled/, only what runs here knows where they are.
    both["environment"] = {
        key: re.sub("^HERE/", f"{Path(__file__).resolve().parent}/", str(value))
        for key, value in both["environment"].items()
    }
    arguments = json.dumps(both["vllm_args"]).replace("MODELS/", f"{models}/")
    return {
        **both,
        "vllm_args": json.loads(arguments),
        "model": name.replace("MODELS/", f"{models}/", 1),
    }


def invoke(inventory: str, wanted: Run, playbook: str, **options: Any) -> Seen:
    """Run a playbook and return what it came to; what is refused is a result, too."""
    seen, started = Seen(), time.monotonic()
    variables = {
        "engines": wanted.engines,
        "allow_disruption": True,
        **wanted.variables,
        **options.pop("variables", {}),
    }
    try:
        outcome: Outcome = run(
            inventory, playbook, extra_vars=variables, on_event=seen.note, **options
        )
        seen.ok, seen.changed = True, outcome.changed
    except RunFailure as failure:
        kept = ("stage", "host", "message", "expected", "found", "cause", "fix")
        seen.failure = {name: getattr(failure, name) for name in kept if getattr(failure, name)}
    except RefusedInput as refusal:
        seen.failure = {"stage": "validate", "message": str(refusal)}
    seen.seconds = round(time.monotonic() - started, 1)
    return seen


def carry_out(inventory: str, wanted: Run) -> dict[str, Any]:
    """Serve, measure, and break what is to be broken; return all that was seen."""
    if wanted.stopped:
        invoke(inventory, wanted, "playbooks/stop.yml")
    with stranger(wanted.stranger):
        first = invoke(inventory, wanted, "site.yml", tags=wanted.tags)
    found: dict[str, Any] = {"name": wanted.name, "engines": wanted.engines, **vars(first)}
    found["as_expected"] = refused(first, wanted.fails) if wanted.fails else first.ok
    if not first.ok:
        return found
    found["loads"] = [measure(inventory, wanted, load) for load in wanted.loads]
    if wanted.kill:
        found["killed"] = broken(inventory, wanted)
    served = found.get("killed", {"serves_again": True}).get("serves_again", False)
    found["as_expected"] &= served and not any("failure" in load for load in found["loads"])
    return found


@contextmanager
def stranger(gib: float) -> Iterator[None]:
    """Hold memory of the first device by a process that belongs to no engine."""
    if not gib:
        yield
        return
    command = [sys.executable, str(Path(__file__).with_name("stranger.py")), str(gib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if not (process.stdout and process.stdout.readline()):
            raise RunsError("nothing holds memory of a device: stranger.py said why")
        try:
            yield
        finally:
            process.communicate()


def refused(seen: Seen, fails: Mapping[str, str]) -> bool:
    """Tell whether the stage that had to refuse did, for the reason it had to."""
    said = " ".join(str(part) for part in seen.failure.values())
    return seen.failure.get("stage") == fails["stage"] and fails["says"] in said


def measure(inventory: str, wanted: Run, load: Mapping[str, int]) -> dict[str, Any]:
    """Measure the served engines once under this load."""
    variables = {f"benchmark_{name}": value for name, value in load.items()}
    variables["benchmark_again"] = True
    seen = invoke(inventory, wanted, "site.yml", tags="benchmark", variables=variables)
    measured = [engine for gate in seen.gates.get("benchmark", ()) for engine in gate["engines"]]
    return {"load": dict(load), "seconds": seen.seconds, "engines": measured, **failed(seen)}


def broken(inventory: str, wanted: Run) -> dict[str, Any]:
    """End one process by SIGKILL; return who says so, after how long, and when all serves again."""
    started = time.monotonic()
    try:
        victim = kill(wanted.engines[0]["name"], wanted.kill)
    except FaultError as error:
        return {"error": str(error)}
    status = invoke(inventory, wanted, "playbooks/status.yml")
    while status.ok and time.monotonic() - started < 120:
        time.sleep(2)
        status = invoke(inventory, wanted, "playbooks/status.yml")
    named = round(time.monotonic() - started, 1)
    again = invoke(inventory, wanted, "site.yml", tags=wanted.tags)
    return {
        "process": victim,
        "named_after_seconds": named,
        "named": status.failure or "nothing: status ended well for 120 s",
        "serves_again": again.ok,
        "serves_again_seconds": again.seconds,
        "said": again.warnings,
        **failed(again),
    }


def failed(seen: Seen) -> dict[str, Any]:
    """Return the failure, where there is one."""
    return {"failure": seen.failure} if seen.failure else {}


def tell(found: Mapping[str, Any], say: Callable[[str], object]) -> None:
    """Say in a few lines what a run came to."""
    verdict = "as expected" if found["as_expected"] else "NOT AS EXPECTED"
    say(f"{found['name']}: {verdict}, {found['seconds']:.0f} s, changed={found['changed']}")
    for line in found["lines"]:
        say(f"  {line}")
    if found["failure"]:
        say(f"  {json.dumps(found['failure'])}")
    for load in found.get("loads", ()):
        say(f"  {json.dumps(load)}")
    if "killed" in found:
        say(f"  {json.dumps(found['killed'])}")


def keep(document: Mapping[str, Any], place: Path) -> None:
    """Write what there is by now."""
    place.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Carry out the runs that are asked for; 0 where each came to what was expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="a file of runs, such as benchmarks/device/two.yml")
    parser.add_argument("-i", "--inventory", required=True)
    parser.add_argument("--models", default="", metavar="DIR", help="what MODELS/ stands for")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the JSON document")
    parser.add_argument("--only", default="", metavar="NAMES", help="these runs, by comma")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many")
    options = parser.parse_args()
    try:
        runs = read(options.runs, options.models.rstrip("/"))
    except (OSError, RunsError, yaml.YAMLError) as error:
        sys.exit(f"device: {error}")
    names = [name for name in options.only.split(",") if name] or [one.name for one in runs]
    if unknown := set(names) - {one.name for one in runs}:
        sys.exit(f"device: no run is called {', '.join(sorted(unknown))}")
    started = time.monotonic()
    document: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "controller": f"Python {platform.python_version()}",
        "command": " ".join(["benchmarks/device/run.py", *sys.argv[1:]]),
        "runs": [],
        "left_out": [],
    }
    for wanted in (one for one in runs if one.name in names):
        if time.monotonic() - started > 60 * options.minutes:
            document["left_out"].append(wanted.name)
            continue
        found = carry_out(options.inventory, wanted)
        document["runs"].append(found)
        tell(found, lambda line: print(line, flush=True))
        # Whoever stops us keeps what there is.
        keep(document, options.to)
    keep(document, options.to)
    return 0 if all(one["as_expected"] for one in document["runs"]) else 1


if __name__ == "__main__":
    sys.exit(main())
