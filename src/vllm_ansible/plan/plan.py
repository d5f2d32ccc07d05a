"""The plan: every engine with its hosts, ranks, ports and arguments, and the reasons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.advice import Terms, advise
from vllm_ansible.plan.arguments import command_line, with_defaults
from vllm_ansible.plan.clashes import clashes
from vllm_ansible.plan.data_placing import no_data_layout, place_data
from vllm_ansible.plan.dynamo import FRONTS
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.layout import Capacity, place
from vllm_ansible.plan.members import Part, divisible, names, parts_of
from vllm_ansible.plan.pairs import fronted, spread
from vllm_ansible.plan.planned_engine import PlannedEngine, plain
from vllm_ansible.plan.ports import (
    INTERNAL_BASE,
    base_of,
    indices_of,
    ports_for,
)
from vllm_ansible.problem import PlanError, Problem

VERSION = 1
KEPT_PLACE = "plan.json in the cluster's directory on the first host"
LENGTH = "--max-model-len"


@dataclass(frozen=True)
class Plan:
    """What a cluster is to run.

    Of this planning alone: `unchecked` says by engine why nobody knows whether it fits, `warnings`
    what a person should know.
    """

    cluster: str
    engines: tuple[PlannedEngine, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def engine(self, name: str) -> PlannedEngine | None:
        """Return the engine of this name, if it is planned."""
        return next((engine for engine in self.engines if engine.name == name), None)

    @property
    def digest(self) -> str:
        """Return a fingerprint of everything but reasons and expectations, which change nothing."""
        engines = [engine.to_dict() for engine in self.engines]
        for engine in engines:
            del engine["reasons"], engine["estimate"]
        return digest({"cluster": self.cluster, "engines": engines})

    def summary(self) -> str:
        """Return the plan as one line for people."""
        return "; ".join(
            f"{engine.name}: {engine.layout.name} on "
            f"{', '.join(engine.hosts)} ({engine.executor}, {_ports(engine)})"
            for engine in self.engines
        )

    def evidence(self) -> dict[str, Any]:
        """Return what a report shows of the plan."""
        return {
            "digest": self.digest,
            "engines": {
                engine.name: {
                    "layout": engine.to_dict()["layout"],
                    "hosts": list(engine.hosts),
                    "reasons": list(engine.reasons),
                }
                for engine in self.engines
            },
        }

    def idle(self, hosts: Iterable[str]) -> list[str]:
        """Return those of some hosts that no engine uses."""
        used = {host for engine in self.engines for host in engine.hosts}
        return [host for host in hosts if host not in used]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plan.json holds it."""
        engines = [json.loads(json.dumps(engine.to_dict())) for engine in self.engines]
        return {
            "version": VERSION,
            "cluster": self.cluster,
            "digest": self.digest,
            "engines": engines,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Plan:
        """Return the plan that plan.json holds, or refuse one that this program did not write."""
        if value.get("version") != VERSION:
            found = f"version {value.get('version')!r}"
            raise PlanError(
                Problem(
                    f"the kept plan has {found}, this program writes {VERSION}",
                    expected=f"version {VERSION}",
                    found=found,
                    where=KEPT_PLACE,
                    fix="run the verb teardown with the program that wrote it",
                )
            )
        try:
            return cls(value["cluster"], tuple(map(PlannedEngine.from_dict, value["engines"])))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PlanError(
                Problem(
                    "the kept plan is not one that this program wrote",
                    expected=f"a plan of version {VERSION}, with every engine's hosts and ports",
                    found=f"{type(error).__name__}: {error}",
                    where=KEPT_PLACE,
                    fix="run the verb teardown, which does not read it, then site.yml again",
                )
            ) from error


def digest(value: object) -> str:
    """Return the fingerprint of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def make_plan(
    cluster: str,
    engines: Sequence[Engine],
    capacities: Sequence[Capacity],
    kept: Plan | None = None,
    port_base: int = INTERNAL_BASE,
    terms: Terms | None = None,
) -> Plan:
    """Return the plan of a cluster, or refuse with every engine that cannot be placed.

    An engine that is asked for as before stays where the kept plan put it, with its ports, whatever
    was measured since; one that changed goes back to its hosts as far as they have room.
    """
    known = terms or Terms()
    unchecked: dict[str, str] = {}
    warnings: list[str] = []
    stays = _staying(engines, capacities, kept, port_base)
    staying = [one for family in stays.values() for one in family]
    free = [_left_free(capacity, staying) for capacity in capacities]
    had = {engine.name: engine.index for engine in kept.engines} if kept else {}
    alone = len(engines) == 1
    problems: list[Problem] = []
    planned: list[PlannedEngine] = []
    waiting = [engine for engine in engines if engine.name not in stays]
    for engine in engines:
        family = stays.get(engine.name, ())
        planned += family
        before = [one for one in kept.engines if one.entry == engine.name] if kept else []
        hosts = tuple(dict.fromkeys(host for one in before for host in one.hosts))
        try:
            parts: Sequence[Part] = ()
            if alone and divisible(engine):
                length = _length(family[0], known) if family else None
                parts = parts_of(engine, free, capacities, known, hosts, length)
            if parts and family and not known.fill:
                warnings.append(_unfilled(engine.name, parts))
                parts = ()
            if not parts and not family:
                advice = advise(engine, free, waiting, known, alone)
                waiting = waiting[1:]
                parts = (Part(advice, tuple(free), placed=False),)
            # Of a set that stays in part, the names of those that are gone come again first.
            taken = {one.name for one in engines if one is not engine}
            named = names(engine, len(parts), taken | {one.name for one in planned})
            listed = dict.fromkeys([*(one.name for one in engines), *named])
            places = indices_of(list(listed), had)
            for name, part in zip(named, parts, strict=True):
                new = _place_engine(engine, name, places[name], part, port_base, hosts)
                planned.append(new)
                warnings += part.advice.warnings
                if part.advice.unchecked:
                    unchecked[name] = part.advice.unchecked
                free = [_left_free(capacity, [new]) for capacity in free]
        except PlanError as error:
            problems += error.problems
    problems += clashes(planned, port_base)
    problems += spread(planned)
    if problems:
        raise PlanError(problems)
    return Plan(cluster, tuple(fronted(planned, FRONTS[0])), unchecked, tuple(warnings))


def _length(engine: PlannedEngine, known: Terms) -> int | None:
    """Return the longest request that a planned engine takes, None where that is not known."""
    if LENGTH in engine.arguments:
        return int(engine.arguments[engine.arguments.index(LENGTH) + 1])
    model = known.models.get(engine.entry)
    return model.max_context if model else None


def _unfilled(entry: str, parts: Sequence[Part]) -> str:
    """Return what is said of engines that would fit beside those that serve."""
    hosts = dict.fromkeys(host.host for part in parts for host in part.capacities)
    devices = sum(len(host.free) for part in parts for host in part.capacities)
    return (
        f"engine {entry}: {len(parts)} more would fit on {devices} idle devices of "
        f"{', '.join(hosts)}; -e plan_fill=true starts them"
    )


def _place_engine(
    entry: Engine,
    name: str,
    index: int,
    part: Part,
    port_base: int,
    before: Sequence[str],
) -> PlannedEngine:
    """Place one engine of an entry and write down all that follows from its place."""
    advice, free = part.advice, part.capacities
    named = tuple(host for host in entry.hosts if host in {one.host for one in free})
    engine = replace(entry, name=name, hosts=named) if part.placed else entry
    layout = advice.layout
    executor = engine.executor
    if executor == "dp" and (layout is None or layout.data == 1):
        raise PlanError(no_data_layout(engine, advice.reasons))
    if layout and layout.data > 1:
        executor = "dp"
        placement = place_data(engine, layout, free, before)
    else:
        placement = place(replace(engine, layout=layout), free, before)
    first = next(capacity for capacity in free if capacity.host == placement.hosts[0])
    reasons = [*advice.reasons, *placement.reasons[1 if advice.chosen else 0 :]]
    if not has_devices(first.accelerator):
        reasons.append("a CPU engine runs eagerly, and with a small cache where none is set")
    return PlannedEngine(
        name=engine.name,
        index=index,
        model=engine.model,
        served_name=engine.served_name,
        model_source=engine.model_source,
        executor=executor,
        role=engine.role,
        layout=placement.layout,
        hosts=placement.hosts,
        ranks=placement.ranks,
        ports=ports_for(index, entry.port if name == entry.name else None, port_base),
        arguments=command_line(
            with_defaults(
                {**advice.arguments, **engine.vllm_args},
                first.accelerator,
                placement.layout.data,
            )
        ),
        environment=dict(engine.environment),
        probe=engine.probe,
        request=digest(plain(entry)),
        reasons=tuple(reasons),
        estimate=advice.estimate,
        front=engine.front,
        part_of="" if name == entry.name else entry.name,
    )


def _ports(engine: PlannedEngine) -> str:
    """Return where an engine answers, for people."""
    ports = [one.port for one in engine.servers()]
    return f"ports {ports[0]} to {ports[-1]}" if len(ports) > 1 else f"port {ports[0]}"


def _staying(
    engines: Sequence[Engine],
    capacities: Sequence[Capacity],
    kept: Plan | None,
    port_base: int,
) -> dict[str, tuple[PlannedEngine, ...]]:
    """Return, by entry, the kept engines asked for unchanged whose devices are still there."""
    there = {capacity.host: capacity.free for capacity in capacities}
    entries = {engine.name for engine in engines}
    stays: dict[str, tuple[PlannedEngine, ...]] = {}
    for engine in engines:
        family = tuple(
            now
            for before in (kept.engines if kept else ())
            if before.entry == engine.name
            and (before.name == engine.name or before.name not in entries)
            and (now := as_before(engine, before))
            and base_of(before.ports, before.index) == port_base
            and (before.executor == engine.executor or not engine.executor_given)
            and all(rank.device in there.get(rank.host, ()) for rank in before.ranks)
        )
        if family:
            stays[engine.name] = family
    return stays


def as_before(engine: Engine, before: PlannedEngine) -> PlannedEngine | None:
    """Return a planned engine with the question that is asked of it now, None if more changed.

    No process knows the question: another one, or another default of it, moves no engine.
    """
    if before.request != digest(plain(replace(engine, probe=before.probe))):
        return None
    return replace(before, probe=engine.probe, request=digest(plain(engine)))


def _left_free(capacity: Capacity, engines: Any) -> Capacity:
    """Return a host without the devices these engines hold."""
    taken = {device for engine in engines for device in engine.devices(capacity.host)}
    return capacity.without(taken)
