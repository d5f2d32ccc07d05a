"""Several models on one cluster: which nodes each gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node
from vllm_ansible.layouts.answer import Answer, NoLayout, answer
from vllm_ansible.layouts.request import Request
from vllm_ansible.planner.problem import PlanError, Problem

# Nodes are dealt one by one up to here, and in as many equal shares of a larger cluster.
SHARES = 16


def share(requests: Sequence[Request]) -> tuple[Answer, ...]:
    """Return a plan for each model, on nodes of its own in the order of the machines.

    Each gets the fewest nodes on which it runs; those left go one after the other to the model
    that gains the largest part of its rate. Where there are fewer nodes than models, the devices
    of each node are dealt instead. Raises NoLayout where they do not suffice.
    """
    if len(requests) == 1:
        return (answer(requests[0]),)
    there = requests[0].machines
    whole = there if len(there.nodes) >= len(requests) else _halved(there, len(requests))
    step = max(1, len(whole.nodes) // SHARES)
    found: list[Answer] = []
    # Of the nodes that a model gets an answer may leave those of another maker idle.
    counts: list[int] = []
    for request in requests:
        one, count = _least(request, whole, sum(counts))
        found.append(one)
        counts.append(count)
    while sum(counts) + step <= len(whole.nodes):
        more = [
            _on(one.request, whole, 0, count + step)
            for one, count in zip(found, counts, strict=True)
        ]
        gains = [
            after.chosen.output_rate / before.chosen.output_rate if after else 0.0
            for after, before in zip(more, found, strict=True)
        ]
        best = max(range(len(found)), key=lambda place: gains[place])
        if gains[best] <= 1.0:
            break
        larger = [count + step * (place == best) for place, count in enumerate(counts)]
        try:
            found = _dealt(requests, whole, larger)
        except NoLayout:
            # The nodes that come next to another model are of a maker on which it does not fit.
            break
        counts = larger
    return tuple(found)


def _least(request: Request, whole: Machines, start: int) -> tuple[Answer, int]:
    """Return the plan on the fewest nodes from a place on, and how many those are."""
    refused: PlanError | None = None
    for count in range(1, len(whole.nodes) - start + 1):
        try:
            return answer(replace(request, machines=_part(whole, start, count))), count
        except NoLayout as error:
            refused = error
    said = refused.problems[0].message if refused else "no node is left for it"
    raise NoLayout(
        Problem(
            f"{request.model.name} does not fit beside the others on {whole.line()}: {said}",
            fix="add nodes, or plan fewer models",
        )
    )


def _dealt(requests: Sequence[Request], whole: Machines, counts: Sequence[int]) -> list[Answer]:
    """Return all plans on so many nodes each."""
    places = [sum(counts[:place]) for place in range(len(counts))]
    return [
        answer(replace(request, machines=_part(whole, start, count)))
        for request, start, count in zip(requests, places, counts, strict=True)
    ]


def _on(request: Request, whole: Machines, start: int, count: int) -> Answer | None:
    try:
        return answer(replace(request, machines=_part(whole, start, count)))
    except PlanError:
        return None


def _part(whole: Machines, start: int, count: int) -> Machines:
    return Machines(whole.nodes[start : start + count], whole.fabric)


def _halved(there: Machines, models: int) -> Machines:
    """Return the machines with each node taken for as many parts as models need."""
    parts = -(-models // len(there.nodes))
    nodes = []
    for node in there.nodes:
        size = node.devices // parts
        if size:
            nodes += [
                Node(f"{node.name}, devices {size * place} to {size * (place + 1) - 1}",
                     node.accelerator, size)
                for place in range(parts)
            ]  # fmt: skip
    if len(nodes) < models:
        raise NoLayout(
            Problem(
                f"{models} models need at least a device each, and there are {there.devices}",
                fix="add devices, or plan fewer models",
            )
        )
    return Machines(tuple(nodes), there.fabric)
