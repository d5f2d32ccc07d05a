"""Decide for each engine as a whole: leave it, start it, restart it in order, or remove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_ansible.node.process.process import ending
from vllm_ansible.plan.process_spec import HEAD, SERVE, WORKER, ProcessSpec
from vllm_ansible.plan.servers import is_server
from vllm_ansible.problem import PlanError, Problem

NONE, START, RESTART, REMOVE = "none", "start", "restart", "remove"
# The names of the steps roles carry out, in order; each is a barrier over all hosts.
STOPS = {SERVE: "stop_serve", WORKER: "stop_workers", HEAD: "stop_heads"}
STARTS = {HEAD: "start_heads", WORKER: "start_workers", SERVE: "start_serve"}
PHASES = (*STOPS.values(), *STARTS.values())

Looks = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class EngineDecision:
    """What to do with one engine, why, and whether it interrupts requests."""

    engine: str
    action: str
    reasons: tuple[str, ...] = ()
    disrupts: bool = False


@dataclass(frozen=True)
class Step:
    """One process to stop or to start in one phase."""

    phase: str
    host: str
    name: str
    engine: str
    # Only to start; what stops is known by its record.
    spec: ProcessSpec | None = None
    forget: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the step with the parameters of managed_process."""
        wanted = self.spec.to_dict() if self.spec else {}
        state = "absent" if self.forget else "started" if self.spec else "stopped"
        return {**wanted, "host": self.host, "name": self.name, "engine": self.engine} | {
            "state": state
        }


@dataclass(frozen=True)
class Decision:
    """What to do with every engine, and the steps that do it."""

    engines: tuple[EngineDecision, ...]
    steps: tuple[Step, ...]

    def to_dict(self, hosts: Sequence[str]) -> dict[str, Any]:
        """Return the steps of each host by phase, as roles loop over them."""
        return {
            "engines": {engine.engine: asdict(engine) for engine in self.engines},
            "hosts": {
                host: {
                    phase: [
                        step.to_dict()
                        for step in self.steps
                        if (step.host, step.phase) == (host, phase)
                    ]
                    for phase in PHASES
                }
                for host in hosts
            },
        }


def decide(
    wanted: Mapping[str, Sequence[ProcessSpec]],
    looks: Looks,
    planned: Sequence[str],
    allow_disruption: bool,
) -> Decision:
    """Return what to do, or refuse with every engine that would be interrupted.

    looks: the processes recorded on each host, by name. planned: the names of all engines of the
    plan, also of those this run leaves alone.
    """
    specs = [spec for host in wanted.values() for spec in host]
    names = sorted({spec.engine for spec in specs}, key=list(planned).index)
    gone = sorted(
        {record["engine"] for host in looks.values() for record in host.values()} - set(planned)
    )
    engines = [
        _engine(name, [spec for spec in specs if spec.engine == name], looks) for name in names
    ]
    engines += [_removal(name, looks) for name in gone if name]
    refused = [_refusal(engine) for engine in engines if engine.disrupts and not allow_disruption]
    if refused:
        raise PlanError(refused)
    steps = [step for engine in engines for step in _steps(engine, specs, looks)]
    order = {phase: place for place, phase in enumerate(PHASES)}
    return Decision(tuple(engines), tuple(sorted(steps, key=lambda step: order[step.phase])))


def of_engines(decision: Decision, names: Sequence[str]) -> Decision:
    """Return what a decision does with some engines; the others stay as they are."""
    return Decision(
        tuple(
            one if one.engine in names else EngineDecision(one.engine, NONE)
            for one in decision.engines
        ),
        tuple(step for step in decision.steps if step.engine in names),
    )


def waiting_for_ray(decision: Decision) -> list[str]:
    """Return the engines beneath which a Ray cluster still has to change."""
    servers = (STOPS[SERVE], STARTS[SERVE])
    return sorted({step.engine for step in decision.steps if step.phase not in servers})


def refuse_ray_steps(decision: Decision) -> None:
    """Refuse to start servers while the Ray cluster beneath one of them still has to change."""
    waiting = waiting_for_ray(decision)
    if waiting:
        raise PlanError(
            Problem(
                f"engine {', '.join(waiting)} needs its Ray cluster started or restarted first",
                expected="the stage cluster before the stage serve",
                found=f"steps left for the Ray of {', '.join(waiting)}",
                where="--tags",
                fix="run both stages (--tags cluster,serve), or all of site.yml",
            )
        )


def _engine(name: str, specs: Sequence[ProcessSpec], looks: Looks) -> EngineDecision:
    """Compare the wanted processes of one engine with what is there."""
    places = {(spec.host, spec.name) for spec in specs}
    running = [spec for spec in specs if _record(spec, looks).get("running")]
    missing = [spec for spec in specs if spec not in running]
    reasons = [reason for spec in specs for reason in _differences(spec, _record(spec, looks))]
    changed = bool(reasons)
    strays = [
        (host, process)
        for host, process, record in _recorded(name, looks)
        if (host, process) not in places and record.get("running")
    ]
    reasons += [f"{host}: {process} is no longer wanted there" for host, process in strays]
    reasons += [f"{spec.host}: {_absence(spec, _record(spec, looks))}" for spec in missing]
    if not reasons:
        return EngineDecision(name, NONE)
    if not running and not strays:
        return EngineDecision(name, START, tuple(reasons))
    if not changed and not strays and _may_continue(running, missing):
        return EngineDecision(name, START, tuple(reasons))
    alone = any(spec.alone for spec in specs)
    # Ranks that need each other wait for one that never started: none of them serves.
    waiting = not (alone or changed or strays) and any(spec.part == SERVE for spec in missing)
    disrupts = not waiting and _serves(name, looks, alone)
    return EngineDecision(name, RESTART, tuple(reasons), disrupts)


def _serves(name: str, looks: Looks, alone: bool = False) -> bool:
    """Tell whether an engine may be answering: its servers run and none of its processes died.

    alone: any of its servers answers without the others.
    """
    recorded = _recorded(name, looks)
    serving = [record.get("running") for _, process, record in recorded if is_server(name, process)]
    if alone:
        return any(serving)
    return bool(serving) and all(record.get("running") for _, _, record in recorded)


def _may_continue(running: Sequence[ProcessSpec], missing: Sequence[ProcessSpec]) -> bool:
    """Tell whether an interrupted start can go on: nothing runs that needs what is missing."""
    if all(spec.alone for spec in (*running, *missing)):
        return True
    if any(spec.part == SERVE for spec in running):
        return False
    return max(spec.order for spec in running) <= min(spec.order for spec in missing)


def _removal(name: str, looks: Looks) -> EngineDecision:
    """Return the removal of an engine that is recorded but planned no more."""
    places = [(host, process) for host, process, _ in _recorded(name, looks)]
    reasons = [
        f"{host}: {process} is recorded, and no engine {name} is planned"
        for host, process in places
    ]
    return EngineDecision(name, REMOVE, tuple(reasons), disrupts=_serves(name, looks))


def _refusal(engine: EngineDecision) -> Problem:
    """Return the sentence that says what would be interrupted, why, and how to allow it."""
    what = "stop and be removed" if engine.action == REMOVE else "restart as a whole"
    why = "; ".join(engine.reasons)
    return Problem(
        f"engine {engine.engine} is serving and would {what}, because {why}",
        expected="allow_disruption: true, or an inventory as it was",
        found=why,
        where=f"engines {engine.engine}",
        fix="run again with -e allow_disruption=true, or undo the change",
    )


def _record(spec: ProcessSpec, looks: Looks) -> Mapping[str, Any]:
    """Return what is recorded of a wanted process."""
    return looks.get(spec.host, {}).get(spec.name, {})


def _recorded(engine: str, looks: Looks) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return every recorded process of an engine with its host and name."""
    return [
        (host, name, record)
        for host, records in looks.items()
        for name, record in records.items()
        if record.get("engine") == engine
    ]


def _differences(spec: ProcessSpec, record: Mapping[str, Any]) -> list[str]:
    """Return how a running process differs from the wanted one."""
    if not record.get("running") or spec.runs_as(record.get("digest")):
        return []
    before, after = str(record.get("command", "")).split(), [str(word) for word in spec.argv]
    gone = [word for word in before if word.strip("'") not in after]
    come = [word for word in after if word not in [old.strip("'") for old in before]]
    if not (gone or come):
        return [f"{spec.host}: environment or dependencies of {spec.name} changed"]
    change = f"{' '.join(gone) or 'nothing'} becomes {' '.join(come) or 'nothing'}"
    return [f"{spec.host}: the command of {spec.name} changed ({change})"]


def _absence(spec: ProcessSpec, record: Mapping[str, Any]) -> str:
    """Return why a wanted process does not run."""
    if not record:
        return f"{spec.name} was never started"
    status = record.get("exit_status")
    return f"{spec.name} {ending(status)}" if status else f"{spec.name} does not run"


def _steps(engine: EngineDecision, specs: Sequence[ProcessSpec], looks: Looks) -> list[Step]:
    """Return the steps of one engine: what runs stops in reverse order, then all starts."""
    own = [spec for spec in specs if spec.engine == engine.engine]
    if engine.action == NONE:
        return []
    stops: list[Step] = []
    parts = {(spec.host, spec.name): spec.part for spec in own}
    for host, name, record in _recorded(engine.engine, looks):
        # Also at a start: a stopped stray would pass for a dead part of the engine ever after.
        forget = engine.action == REMOVE or (host, name) not in parts
        if forget or (engine.action == RESTART and record.get("running")):
            part = parts.get((host, name)) or _part(engine.engine, name)
            stops.append(Step(STOPS[part], host, name, engine.engine, forget=forget))
    starts = [
        Step(STARTS[spec.part], spec.host, spec.name, spec.engine, spec)
        for spec in own
        if engine.action == RESTART or not _record(spec, looks).get("running")
    ]
    return [*stops, *(starts if engine.action != REMOVE else [])]


def _part(engine: str, name: str) -> str:
    """Return the part of a process whose plan is gone; a Ray node without one stops as a worker."""
    return SERVE if is_server(engine, name) else WORKER
