"""The engines that `layout: auto` of one entry comes to: the set that the planner answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node, usual_fabric
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.advice import (
    MADE,
    TOLD,
    Advice,
    Terms,
    advice_of,
    asked_of,
    compiled_experts,
    drafts_beside,
)
from vllm_ansible.plan.dynamo import FRONTS
from vllm_ansible.plan.engines import NAME_LENGTH, Engine
from vllm_ansible.plan.estimate.layouts.answer import NoLayout
from vllm_ansible.plan.estimate.layouts.engine_set import Built, EngineSet, built, engine_set
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import check
from vllm_ansible.plan.layout import Capacity, allowed
from vllm_ansible.plan.model_arguments import unknown_size
from vllm_ansible.plan.unfit import refuse_length
from vllm_ansible.problem import PlanError


@frozen
class Part:
    """One engine of a set: what is known of it, and its hosts with the devices it takes."""

    advice: Advice
    capacities: tuple[Capacity, ...]
    # Whether the planner chose these hosts, not only the layout.
    placed: bool = True


def divisible(engine: Engine) -> bool:
    """Tell whether an entry leaves it to the planner how many engines serve it.

    A number of nodes, an executor and Dynamo are of one engine.
    """
    return (
        engine.layout is None
        and engine.nodes is None
        and not engine.executor_given
        and engine.front == FRONTS[0]
    )


def parts_of(
    engine: Engine,
    free: Sequence[Capacity],
    whole: Sequence[Capacity],
    terms: Terms,
    before: Sequence[str] = (),
    longest: int | None = None,
) -> tuple[Part, ...]:
    """Return the engines of an entry on the devices that are free, none where nobody knows.

    whole: the hosts with all their devices; those that are not free have their part of the load.
    before: hosts that come first, since an engine of this entry was there.
    longest: the longest request in tokens that engines of this entry take which serve already: the
    door sends a request to any of them.
    """
    model = terms.models.get(engine.name)
    if model is None or (engine.model_source == MADE and not terms.settled):
        return ()
    refuse_length(engine, model)
    there = {host.host: host for host in allowed(engine, free, before) if host.device and host.free}
    if not there or unknown_size(engine, model):
        return ()
    nodes = [Node(host.host, host.device, len(host.free)) for host in there.values() if host.device]
    fabric = usual_fabric(nodes)
    if terms.measured:
        fabric = replace(fabric, measured=terms.measured, assumed=False)
    try:
        request = check(asked_of(engine, model, Machines(tuple(nodes), fabric)))
    except PlanError:
        return ()
    if longest:
        request = replace(request, context=longest)
    all_ = sum(len(host.free) for host in allowed(engine, whole) if host.device)
    share = max(1, request.concurrency * sum(node.devices for node in nodes) // all_)
    try:
        found = engine_set(replace(request, concurrency=share))
    except NoLayout:
        return ()
    engines = built(found)
    if longest == model.max_context:  # vLLM takes the model's own length without being asked
        engines = tuple(replace(one, length=None) for one in engines)
    return tuple(
        Part(_advice(engine, one, len(engines), found if place == 0 else None), _taken(one, there))
        for place, one in enumerate(engines)
    )


def names(engine: Engine, count: int, taken: Iterable[str]) -> list[str]:
    """Return names for so many engines of an entry: its own first, then numbered ones.

    taken: names that others have, of this entry's own engines as well.
    """
    used = set(taken)
    found: list[str] = []
    number = 1
    while len(found) < count:
        end = f"-{number}" if number > 1 else ""
        name = f"{engine.name[: NAME_LENGTH - len(end)].rstrip('-')}{end}"
        if name not in used:
            found.append(name)
        number += 1
    return found


def _taken(one: Built, there: dict[str, Capacity]) -> tuple[Capacity, ...]:
    """Return the hosts of an engine, each with the devices that it takes there."""
    numbers: dict[str, list[int]] = {}
    for node, number in one.devices:
        numbers.setdefault(node, []).append(there[node].free[number])
    return tuple(replace(there[node], free=tuple(free)) for node, free in numbers.items())


def _advice(engine: Engine, one: Built, count: int, found: EngineSet | None) -> Advice:
    """Return what is known of one engine of a set, at its part of the load.

    found: the set, for what is to be said once of all.
    """
    asked = one.member.answer.request
    used = {node for node, _ in one.devices}
    nodes = tuple(node for node in asked.machines.nodes if node.name in used)
    there = Machines(nodes, asked.machines.fabric)
    judge = Judge(replace(asked, machines=there, concurrency=one.concurrency, wanted=None))
    others = one.member.answer.others[:TOLD]
    reasons = [f"not {other.candidate.name}: {why}" for other, why in others]
    reasons += [f"one of {count} engines that serve {engine.name}"] if count > 1 else []
    reasons += [
        f"{piece.node.devices} x {piece.node.accelerator.name} of {piece.node.name} idle: {why}"
        for piece, why in (found.idle if found else ())
    ]
    advice = advice_of(engine, judge.verdict(one.candidate), judge, one.length, reasons)
    if not found:
        return advice
    told = (*drafts_beside(engine, asked.model), *compiled_experts(engine, advice.layout, judge))
    return replace(advice, warnings=told)
