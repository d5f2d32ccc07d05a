"""Refuse inventories whose hosts disagree, that lack hosts or room for their engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm_ansible.accelerators.accelerator import Accelerator, accelerator
from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.inventory.readable import Readings
from vllm_ansible.inventory.variables import Unresolved, Where
from vllm_ansible.node.weights.models import PACKAGES, RANDOM, model_of
from vllm_ansible.node.weights.safetensors import WeightsError
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import Engine, parse_engines
from vllm_ansible.plan.idle import idle_devices
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.ports import INTERNAL_BASE
from vllm_ansible.problem import PlanError, Problem, close_match
from vllm_ansible.provision.giver import giver

# Its host sends the load of the benchmark and of the ramp.
LOAD = "load"
# One cluster, one value: two would make two half clusters.
EQUAL = (
    "allow_disruption",
    "cluster_name",
    "data_plane_network",
    "engine_build",
    "engine_image",
    "engine_image_file",
    "engine_image_ipc",
    "engine_image_mounts",
    "engine_image_packages",
    "engine_image_privileged",
    "engine_image_sha256",
    "engine_python",
    "engine_source",
    "engines",
    "environment_shared_dir",
    "environment_shared_form",
    "forget_rungs",
    "huggingface_token_file",
    "object_storage_credentials_file",
    "object_storage_endpoint",
    "object_storage_region",
    "port_base",
    "vllm_api_key_file",
)
# What runs on hosts of the cluster that it names.
NAMING = ("door_host", "door_hosts", "observe_host", "weights_outside_hosts")
# No host has as many: stands in where an inventory does not say how many it has.
UNDECLARED = 1024

# Reads the configurations of the engines' models, those that can be read, by engine.
ReadModels = Callable[[Sequence[Engine]], Readings]


def disagreements(
    hosts: Mapping[str, Mapping[str, Any]], defaults: Mapping[str, Any], where: Where
) -> list[Problem]:
    """Return one problem for each variable that must be equal on all hosts and is not."""
    problems = []
    for name in EQUAL:
        values: list[tuple[Any, list[str]]] = []
        for host, variables in hosts.items():
            value = variables.get(name, defaults.get(name))
            for known, named in values:
                if known == value:
                    named.append(host)
                    break
            else:
                values.append((value, [host]))
        if len(values) > 1:
            problems.append(_disagreement(name, values, where))
    return problems


def _disagreement(name: str, values: list[tuple[Any, list[str]]], where: Where) -> Problem:
    """Return the sentence that names the odd hosts, their value and the others'."""
    usual = max(values, key=lambda item: len(item[1]))
    odd = [item for item in values if item is not usual]
    told = "; ".join(f"{_short(value)} on {', '.join(named)}" for value, named in odd)
    strays = [host for _, named in odd for host in named]
    return Problem(
        f"{name} must be equal on all hosts of a cluster: it is {told}, "
        f"but {_short(usual[0])} on {', '.join(usual[1])}",
        expected=f"{_short(usual[0])} on every host",
        found=told,
        where=where(name, strays),
        fix=f"set {name} in group_vars/all.yml only",
    )


def _short(value: Any) -> str:
    """Return a value short enough for a sentence."""
    text = str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def missing_hosts(gpu: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Return the refusal of an inventory without hosts to serve on."""
    if gpu:
        return []
    others = sorted(name for name, members in groups.items() if members and name != "ungrouped")
    missing = "the group gpu has no hosts" if "gpu" in groups else "there is no group gpu"
    return [
        Problem(
            missing,
            expected="at least one host in the group gpu",
            found=f"groups with hosts: {', '.join(others) or 'none'}",
            where="the inventory",
            fix="put the hosts that serve models into the group gpu (is it the right -i?)",
        )
    ]


def wrong_load(gpu: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Return what is wrong with the group load: one host that serves nothing, or no such group."""
    load = list(groups.get(LOAD, ()))
    both = [host for host in load if host in gpu]
    if not both and len(load) <= 1:
        return []
    if both:
        message = f"{', '.join(both)} would send the load of the benchmark and serve it"
        expected, found = "no host of the group gpu in the group load", ", ".join(both)
        fix = "take it out of the group load, without which the load comes from the engine's host"
    else:
        message = "the load of the benchmark comes from one host"
        expected, found = "one host in the group load", ", ".join(load)
        fix = f"leave one host in the group load, such as {load[0]}"
    return [Problem(message, expected=expected, found=found, where="the group load", fix=fix)]


def absent_hosts(
    gpu: Sequence[str], wanted: Mapping[str, Any], mistyped: Sequence[Problem], where: Where
) -> list[Problem]:
    """Return one problem for each variable that names a host which the cluster lacks.

    wanted: the variables of a host. Hosts that a provider is still to give have no names yet.
    """
    if not gpu or wanted.get("provision_provider"):
        return []
    problems = []
    for name in NAMING:
        value = wanted.get(name)
        refused = any(problem.message.startswith(f"{name} ") for problem in mistyped)
        if refused or not isinstance(value, str | list):
            continue
        named = [str(one) for one in ([value] if isinstance(value, str) else value) if one]
        absent = [one for one in named if one not in gpu]
        if absent:
            guess = close_match(absent[0], gpu)
            problems.append(
                Problem(
                    f"{name} names {', '.join(absent)}, which the group gpu does not have",
                    expected=f"of {', '.join(gpu)}",
                    found=", ".join(absent),
                    where=where(name, list(gpu)),
                    fix=guess or f"name a host of the group gpu in {name}: {', '.join(gpu)}",
                )
            )
    return problems


def doubled_addresses(addresses: Mapping[str, str], where: Where) -> list[Problem]:
    """Return one problem for each address of several hosts: one machine, counted twice.

    addresses: of each host, at which it is reached, with its port.
    """
    owners: dict[str, list[str]] = {}
    for host, address in addresses.items():
        owners.setdefault(address, []).append(host)
    return [
        Problem(
            f"{', '.join(hosts)} are one machine: each has the address {address}",
            expected="an address of its own for every host",
            found=f"{address} for {', '.join(hosts)}",
            where=where("ansible_host", hosts[1:]) or "the inventory",
            fix="correct ansible_host, or take the host out that is listed twice",
        )
        for address, hosts in owners.items()
        if len(hosts) > 1
    ]


def unsaid_engines(
    hosts: Mapping[str, Mapping[str, Any]], default: Any, where: str
) -> list[Problem]:
    """Refuse to serve the default model, which fits this machine, where machines cost."""
    givers = {str(one.get("provision_provider") or "") for one in hosts.values()} - {""}
    if not givers or any("engines" in variables for variables in hosts.values()):
        return []
    model = default[0]["model"] if default else "nothing"
    which = "rented" if all(giver(one).rents for one in givers) else "allocated"
    return [
        Problem(
            f"engines is not set, and {len(hosts)} machines would be {which} to serve {model}",
            expected=f"engines, the models that {which} machines are to serve",
            found="none; the default is for trying the project on one machine",
            where=where,
            fix="add engines: [{name: chat, model: org/name}], also to serve the default model",
        )
    ]


def estimate(
    cluster: str,
    engines: object,
    hosts: Mapping[str, Mapping[str, Any]],
    port_base: int = INTERNAL_BASE,
    read_models: ReadModels | None = None,
    settled: bool = False,
) -> tuple[tuple[Engine, ...], Plan | None, list[Problem]]:
    """Return the engines and the plan as far as it can be known without looking at a host.

    read_models is asked only where the inventory says what the accelerators will be. settled: see
    planner.advice.Terms.
    """
    if isinstance(engines, Unresolved):
        return (), None, []
    try:
        typed = parse_engines(engines)
    except PlanError as error:
        return (), None, list(error.problems)
    unknown = _unknown_models(typed)
    if unknown or not hosts:
        return typed, None, unknown
    try:
        capacities = declared(hosts)
        known = any(capacity.device for capacity in capacities)
        found = read_models(typed) if read_models and known else Readings()
        first = next(iter(hosts.values()))
        terms = Terms(
            found.models,
            found.unread,
            settled=settled,
            allow_unfit=is_true(first.get("plan_allow_unfit")),
        )
        plan = make_plan(cluster, typed, capacities, port_base=port_base, terms=terms)
    except PlanError as error:
        return typed, None, list(error.problems)
    return typed, plan, []


def is_true(value: object) -> bool:
    """Return what Ansible takes a switch for, also one that -e gave as text."""
    return str(value).strip().lower() in ("true", "yes", "on", "1", "y", "t")


def _unknown_models(engines: Sequence[Engine]) -> list[Problem]:
    """Return one problem for each model of ours that does not exist."""
    problems = []
    for engine in engines:
        try:
            model_of(asdict(engine))
        except WeightsError as error:
            known = ", ".join(sorted((*PACKAGES, *RANDOM)))
            if engine.model_source == "s3":
                told = error.details
                message = f"engine {engine.name}: {error}"
                problems.append(Problem(message, told["expected"], told["found"], fix=told["fix"]))
                continue
            problems.append(
                Problem(
                    f"engine {engine.name}: {error}",
                    expected=f"one of {known}, org/name, s3://bucket/prefix or a directory",
                    found=engine.model,
                    fix=close_match(engine.model, (*PACKAGES, *RANDOM)) or f"there are {known}",
                )
            )
    return problems


def whole_number(value: object, default: int) -> int:
    """Return a number of an inventory; one of the wrong type has its own problem."""
    return int(str(value)) if str(value).isdigit() else default


def declared(hosts: Mapping[str, Mapping[str, Any]]) -> list[Capacity]:
    """Return what an inventory declares of each host; what it leaves open may be anything."""
    kinds = {str(variables.get("accelerator") or "auto") for variables in hosts.values()}
    known = kinds - {"auto"}
    stand_in = next(iter(known)) if len(known) == 1 else "auto"
    capacities = []
    for host, variables in hosts.items():
        kind = str(variables.get("accelerator") or "auto")
        count = whole_number(variables.get("accelerator_count"), 0)
        count = count or (UNDECLARED if has_devices(kind) else 1)
        kind = stand_in if kind == "auto" else kind
        capacities.append(Capacity.whole(host, kind, count, _device(variables, kind)))
    return capacities


def idle(
    plan: Plan, engines: Sequence[Engine], hosts: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[int, int]]:
    """Return of each host whose accelerators are counted how many no engine would use.

    Nothing where an engine's layout is not known yet: one rank stands in for it.
    """
    planned = {engine.name: engine for engine in plan.engines}
    if any(one.layout is None and not planned[one.name].estimate for one in engines):
        return {}
    return idle_devices(
        plan,
        {
            one.host: one.count
            for one in declared(hosts)
            if has_devices(one.accelerator) and one.count != UNDECLARED
        },
    )


def _device(variables: Mapping[str, Any], kind: str) -> Accelerator | None:
    """Return the accelerator that an inventory says its hosts will have; it needs their number."""
    name = str(variables.get("accelerator_model") or "")
    if not name or not has_devices(kind) or not whole_number(variables.get("accelerator_count"), 0):
        return None
    own = variables.get("accelerators")
    return accelerator(name, own if isinstance(own, Mapping) else None)


def empty_limit(gpu: Sequence[str], selected: Sequence[str]) -> list[Problem]:
    """Return the refusal of a --limit that leaves nothing to do."""
    if not gpu or selected:
        return []
    return [
        Problem(
            "--limit leaves no host of the group gpu",
            expected=f"some of {', '.join(gpu)}",
            found="none of them",
            where="--limit",
            fix="correct --limit, or run without it",
        )
    ]


def split_engines(plan: Plan | None, selected: Sequence[str]) -> list[Problem]:
    """Return one problem for each engine that --limit would cut in two."""
    problems = []
    for engine in plan.engines if plan else ():
        absent = [host for host in engine.hosts if host not in selected]
        if absent and len(absent) < len(engine.hosts):
            problems.append(
                Problem(
                    f"--limit would split engine {engine.name}, which spans "
                    f"{', '.join(engine.hosts)}: it leaves out {', '.join(absent)}",
                    expected=f"all hosts of engine {engine.name}, or none",
                    found=f"--limit leaves {', '.join(selected)}",
                    where="--limit",
                    fix=f"add {', '.join(absent)} to --limit, or run without it",
                )
            )
    return problems


def nothing_to_serve(plan: Plan, selected: Sequence[str]) -> list[Problem]:
    """Return the refusal of a --limit to hosts on which no engine runs."""
    if any(set(engine.hosts) & set(selected) for engine in plan.engines):
        return []
    placed = "; ".join(f"{engine.name} on {', '.join(engine.hosts)}" for engine in plan.engines)
    return [
        Problem(
            "--limit leaves no host of any engine",
            expected=f"hosts of an engine: {placed}",
            found=f"--limit leaves {', '.join(selected)}",
            where="--limit",
            fix="add the hosts of an engine to --limit, or run without it; "
            "--tags prepare,install readies a host that has none",
        )
    ]
