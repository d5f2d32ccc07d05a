"""Everything that can be refused before a machine is touched, all of it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.inventory import clients, cluster, image, variables
from vllm_ansible.inventory.secret_files import missing_secrets
from vllm_ansible.inventory.specs import Option
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.idle import idle_line, idle_warnings
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.ports import INTERNAL_BASE
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.wheels.builds import parse_builds


@dataclass(frozen=True)
class Inventory:
    """An inventory as Ansible resolved it."""

    # By host, every variable with its value, or Unresolved.
    hosts: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Sequence[str]]
    # The hosts of the group gpu, and those of them that --limit leaves in.
    gpu: Sequence[str]
    selected: Sequence[str]
    # Every variable that connections and Ansible itself read.
    connection: Sequence[str] = ()
    # Of the hosts of the groups gpu and load that have one: at which address and port.
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a check found, and what it understood."""

    problems: tuple[Problem, ...]
    cluster: str = ""
    engines: tuple[Engine, ...] = ()
    plan: Plan | None = None
    hosts: tuple[str, ...] = field(default=())
    # By host whose devices the inventory counts: how many would stay idle, and how many it has.
    idle: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def summary(self) -> str:
        """Return the verdict as one line for people."""
        engines = f"{len(self.engines)} engine{'s' if len(self.engines) != 1 else ''}"
        hosts = f"{len(self.hosts)} host{'s' if len(self.hosts) != 1 else ''}"
        planned = [
            f"{engine.name}: {engine.reasons[0]}"
            for engine in (self.plan.engines if self.plan else ())
            if engine.estimate
        ]
        reasons: dict[str, list[str]] = {}
        for name, why in self.unchecked.items():
            reasons.setdefault(why, []).append(name)
        unknown = [
            f"fit of {', '.join(names)} not checked: {why}" for why, names in reasons.items()
        ]
        idle = [line] if (line := idle_line(self.idle)) else []
        return "; ".join([f"{self.cluster}: {engines} on {hosts}", *planned, *unknown, *idle])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know of the plan."""
        planned = self.plan.warnings if self.plan else ()
        return (*planned, *idle_warnings(self.idle))

    @property
    def unchecked(self) -> Mapping[str, str]:
        """Return by engine why nobody knows yet whether it fits."""
        return self.plan.unchecked if self.plan else {}


def check(
    inventory: Inventory,
    options: Mapping[str, Option],
    accepts: variables.Accepts,
    where: variables.Where,
    read_models: cluster.ReadModels | None = None,
) -> Verdict:
    """Return every problem of an inventory; a value that was refused is not judged further."""
    gpu = {host: inventory.hosts[host] for host in inventory.gpu}
    everyone = inventory.hosts
    problems = cluster.missing_hosts(inventory.gpu, inventory.groups)
    problems += cluster.wrong_load(inventory.gpu, inventory.groups)
    problems += variables.unknown_variables(everyone, options, inventory.connection, where)
    mistyped = variables.wrong_types(everyone, options, accepts, where)
    problems += mistyped
    defaults = {name: option.default for name, option in options.items()}
    problems += cluster.disagreements(gpu, defaults, where)
    first = {**defaults, **next(iter(gpu.values()), next(iter(everyone.values()), {}))}
    problems += missing_secrets(first, where)
    problems += cluster.absent_hosts(inventory.gpu, first, mistyped, where)
    problems += cluster.doubled_addresses(inventory.addresses, where)
    problems += cluster.unsaid_engines(gpu, defaults.get("engines"), "group_vars/all.yml")
    name, wanted = str(first.get("cluster_name")), first.get("engines")
    if any(problem.message.startswith("engines ") for problem in mistyped):
        wanted = variables.Unresolved("refused already")
    base = cluster.whole_number(first.get("port_base"), INTERNAL_BASE)
    engines, plan, refused = cluster.estimate(name, wanted, gpu, base, read_models)
    place = where("engines", list(inventory.gpu)) if refused else ""
    problems += [_placed(problem, place) for problem in refused]
    problems += clients.unkept(first, engines, where)
    refused = _wrong_builds(first.get("engine_build"), mistyped)
    place = where("engine_build", list(inventory.gpu)) if refused else ""
    problems += [_placed(problem, place) for problem in refused]
    problems += image.wrong(first, plan, lambda name: where(name, list(inventory.gpu)))
    problems += cluster.empty_limit(inventory.gpu, inventory.selected)
    idle = cluster.idle(plan, engines, gpu) if plan else {}
    return Verdict(tuple(_once(problems)), name, engines, plan, tuple(inventory.selected), idle)


def _wrong_builds(wanted: Any, mistyped: Sequence[Problem]) -> list[Problem]:
    """Return what is wrong with what is to be built from source, unless its type is refused."""
    if isinstance(wanted, variables.Unresolved) or any(
        problem.message.startswith("engine_build ") for problem in mistyped
    ):
        return []
    try:
        parse_builds(wanted or [])
    except PlanError as error:
        return list(error.problems)
    return []


def _placed(problem: Problem, place: str) -> Problem:
    """Return a problem of the engine list with the file that holds the list."""
    return Problem(problem.message, problem.expected, problem.found, place, problem.fix)


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems without repetition, in their order."""
    return list(dict.fromkeys(problems))
