"""Which device of which node every rank of a candidate gets, and which layers every stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.machines import Machines, Node
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.candidate import Candidate, alike, usable


@frozen
class Seat:
    """One rank: its engine (replica), pipeline stage, node and device there."""

    engine: int
    rank: int
    stage: int
    node: str
    device: int


@frozen
class Site:
    """Where the devices of each stage of one engine are.

    `tensor_nodes` are the nodes of one tensor-parallel group, `nodes` those of all ranks of it.
    """

    accelerator: Accelerator
    tensor_nodes: int
    nodes: int


def sites(candidate: Candidate, machines: Machines) -> tuple[Site, ...]:
    """Return the site of every stage of the candidate's first engine."""
    if alike(machines.nodes):
        node = machines.nodes[0]
        group = candidate.tensor * candidate.data
        one = Site(
            node.accelerator,
            candidate.tensor_nodes(node.devices),
            -(-group // usable(candidate.tensor, node.devices)),
        )
        return (one,) * candidate.pipeline
    kinds = [
        node.accelerator for node in machines.nodes for _ in range(node.devices // candidate.tensor)
    ]
    return tuple(Site(kind, 1, 1) for kind in _chosen(kinds, candidate.pipeline))


def nodes_of_engine(candidate: Candidate, machines: Machines) -> int:
    """Return how many nodes one engine spans."""
    if alike(machines.nodes):
        return candidate.nodes(machines.nodes[0].devices)
    return len({seat.node for seat in seats(candidate, machines)})


def seats(candidate: Candidate, machines: Machines) -> tuple[Seat, ...]:
    """Return the seat of every rank of every engine, node by node as vLLM numbers them."""
    if not alike(machines.nodes):
        return tuple(_unlike(candidate, machines.nodes))
    devices = usable(candidate.tensor, machines.nodes[0].devices)
    found = []
    per_stage = candidate.tensor * candidate.data
    for engine in range(candidate.replicas):
        if candidate.ranks <= devices:
            start = (engine // (devices // candidate.ranks)) * devices
            start += engine % (devices // candidate.ranks) * candidate.ranks
        else:
            start = engine * -(-candidate.ranks // devices) * devices
        for rank in range(candidate.ranks):
            node, device = divmod(start + rank, devices)
            name = machines.nodes[node].name
            found.append(Seat(engine, rank, rank // per_stage, name, device))
    return tuple(found)


def partition(layers: int, memory: Sequence[int], speed: Sequence[float]) -> tuple[int, ...] | None:
    """Return how many layers each stage gets when devices differ, None when they are alike.

    In proportion to memory bandwidth, which a decode step is bound by, as far as memory goes.
    """
    if len(set(zip(memory, speed, strict=True))) == 1:
        return None
    total = float(sum(speed))
    exact = [layers * rate / total for rate in speed]
    share = [max(1, int(part)) for part in exact]
    order = sorted(range(len(share)), key=lambda place: exact[place] - share[place], reverse=True)
    for step in range(layers - sum(share)):
        share[order[step % len(order)]] += 1
    # A slow stage has one layer at least, which may be more than its part: a fast one gives it.
    while sum(share) > layers:
        share[share.index(max(share))] -= 1
    # A stage that would hold more than its part of all memory gives layers to the roomiest.
    room = [layers * size / sum(memory) for size in memory]
    for _ in range(layers):
        fullest = max(range(len(share)), key=lambda place: share[place] / room[place])
        roomiest = min(range(len(share)), key=lambda place: share[place] / room[place])
        if share[fullest] - 1 < room[fullest] * 1.1 or share[fullest] == 1:
            break
        share[fullest] -= 1
        share[roomiest] += 1
    return tuple(share)


def _chosen(kinds: Sequence[Accelerator], stages: int) -> list[Accelerator]:
    """Return the devices of so many stages: those with the most memory, in their order."""
    best = sorted(range(len(kinds)), key=lambda place: -kinds[place].memory_bytes)[:stages]
    return [kinds[place] for place in sorted(best)]


def _unlike(candidate: Candidate, nodes: Sequence[Node]) -> Iterator[Seat]:
    groups = [(node, group) for node in nodes for group in range(node.devices // candidate.tensor)]
    order = sorted(range(len(groups)), key=lambda place: -groups[place][0].accelerator.memory_bytes)
    for stage, place in enumerate(sorted(order[: candidate.pipeline])):
        node, group = groups[place]
        for part in range(candidate.tensor):
            rank = stage * candidate.tensor + part
            yield Seat(0, rank, stage, node.name, group * candidate.tensor + part)
