"""The processes of a plan as a script starts them, from what the product itself would start.

Nodes, addresses and directories are known to the job alone. So the planner is asked about hosts
whose facts are variables of the script; its words come back with those variables in their places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.process_spec import ORDER, SERVE, ProcessSpec
from vllm_ansible.plan.processes import wanted_processes
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.shell import is_marked, renamed, variable
from vllm_ansible.slurm.wanted import Wanted

DIRECTORY, LOCAL = variable("DIRECTORY"), variable("LOCAL")
ENVIRONMENT, PATH = variable("ENVIRONMENT"), variable("PATH")


@dataclass(frozen=True)
class Start:
    """One part of an engine: the same words on each of its nodes, with `slot` for the node's own.

    `environment` is what it has beside what all processes of its engine have.
    """

    function: str
    name: str
    part: str
    slots: tuple[int, ...]
    environment: Mapping[str, str]
    argv: tuple[str, ...]


@dataclass(frozen=True)
class EngineStarts:
    """An engine, the environment that all of its processes have, and its parts in their order."""

    engine: PlannedEngine
    slots: tuple[int, ...]
    # Those on which something answers requests.
    answering: tuple[int, ...]
    common: Mapping[str, str]
    starts: tuple[Start, ...]
    image: str = ""

    @property
    def no_weights(self) -> str:
        """Return what to say where `weights` does not exist."""
        told = f"{self.engine.name} has no weights in {variable('weights')}"
        if self.engine.model_source != "hub":
            return told
        hub = f"apptainer exec {self.image} hf" if self.image else f"{ENVIRONMENT}/bin/hf"
        fetch = f"{hub} download {self.engine.model}"
        return f"{told}; where the hub is in reach: {fetch} --local-dir {variable('weights')}"

    @property
    def key_file(self) -> str:
        """Return where the first node's server reads the key."""
        server = next(one for one in self.starts if one.part == SERVE)
        return {**self.common, **server.environment}["ENGINE_KEY_FILE"]


def engine_starts(wanted: Wanted) -> tuple[EngineStarts, ...]:
    """Return how every engine of a plan is started; raise PlanError for what no script can hold."""
    if is_marked(json.dumps(wanted.plan.to_dict(), ensure_ascii=False)):
        raise PlanError(Problem("an engine holds characters of no language", where="engines"))
    specs = symbolic_processes(wanted)
    return tuple(
        replace(_engine(engine, wanted.hosts, specs), image=wanted.image)
        for engine in wanted.plan.engines
    )


def symbolic_processes(wanted: Wanted) -> dict[str, tuple[ProcessSpec, ...]]:
    """Return the planner's processes on hosts whose facts are variables of the script."""
    hosts = {name: _host(name, slot, wanted) for slot, name in enumerate(wanted.hosts)}
    environments = {name: {"directory": ENVIRONMENT, "apptainer": wanted.image} for name in hosts}
    models = dict.fromkeys(hosts, wanted.models)
    return wanted_processes(wanted.plan, hosts, environments, models)


def _host(name: str, slot: int, wanted: Wanted) -> dict[str, Any]:
    """Return site_host of one node, as far as processes depend on it."""
    return {
        "name": name,
        "accelerator": wanted.accelerator,
        "accelerator_count": wanted.accelerator_count,
        "address": variable(f"ADDRESS[{slot}]"),
        "interface": variable(f"INTERFACE[{slot}]"),
        "cluster_dir": f"{DIRECTORY}/node-{variable(f'slot{slot}')}",
        "run_dir": LOCAL,
        # What site_setup sets is there already; only PATH has something put before it.
        "site_environment": {"PATH": PATH},
    }


def _engine(
    engine: PlannedEngine, hosts: tuple[str, ...], specs: Mapping[str, Iterable[ProcessSpec]]
) -> EngineStarts:
    """Return one engine with nodes that start the same joined."""
    found: dict[tuple[Any, ...], list[int]] = {}
    environments = []
    for host in engine.hosts:
        slot = hosts.index(host)
        for spec in specs[host]:
            if spec.engine != engine.name:
                continue
            environment = {name: _own(text, slot) for name, text in spec.environment.items()}
            if "OMP_NUM_THREADS" in environment and "OMP_NUM_THREADS" not in engine.environment:
                # How many cores a node has is seen in the job.
                environment["OMP_NUM_THREADS"] = variable("THREADS")
            environments.append(environment)
            argv = tuple(_own(text, slot) for text in spec.argv)
            key = (spec.part, spec.name, argv, tuple(environment.items()))
            found.setdefault(key, []).append(slot)
    common = dict(set.intersection(*({*one.items()} for one in environments)))
    parts = [part for part, *_ in found]
    named = {(part, name) for part, name, *_ in found}
    starts = [
        Start(
            function=_function(
                # Data ranks have names of their own, ranks of one server have not.
                name if len([one for one in named if one[0] == part]) > 1 else None,
                engine,
                part,
                slots[0] if parts.count(part) > 1 else None,
            ),
            name=name,
            part=part,
            slots=tuple(slots),
            environment={key: text for key, text in environment if key not in common},
            argv=argv,
        )
        for (part, name, argv, environment), slots in found.items()
    ]
    return EngineStarts(
        engine,
        tuple(hosts.index(host) for host in engine.hosts),
        tuple(dict.fromkeys(hosts.index(one.host) for one in engine.servers())),
        dict(sorted(common.items())),
        tuple(sorted(starts, key=lambda one: (ORDER.index(one.part), one.slots))),
    )


def _function(name: str | None, engine: PlannedEngine, part: str, slot: int | None) -> str:
    """Return what the function that starts a part is called, by process or by node if needed."""
    words = [name] if name else [engine.name, part, *([] if slot is None else [str(slot)])]
    return "_".join(words).replace("-", "_")


def _own(text: str, slot: int) -> str:
    """Return a text in which the node's own variables are named by `slot`."""
    names = {f"{name}[{slot}]": f"{name}[slot]" for name in ("ADDRESS", "INTERFACE")}
    return renamed(text, {**names, f"slot{slot}": "slot"})
