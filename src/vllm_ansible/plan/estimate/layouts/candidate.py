"""The splits that machines allow, before any limit of the model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node
from vllm_ansible.frozen import frozen

# Up to here every number of stages is tried; beyond, those that use all devices.
EVERY_PIPELINE = 4
# Data ranks of one engine at most, each with a port of the engine's block (plan/ports.py).
MOST_DATA = 80


@frozen
class Candidate:
    """One engine's split, and how many such engines the machines hold."""

    tensor: int
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    replicas: int = 1

    @property
    def ranks(self) -> int:
        """Return the devices of one engine."""
        return self.tensor * self.pipeline * self.data

    @property
    def name(self) -> str:
        """Return the split as people write it: TP4 PP4, or 2 x TP8 DP2 EP16."""
        parts = [f"TP{self.tensor}"]
        parts += [f"PP{self.pipeline}"] if self.pipeline > 1 else []
        parts += [f"DP{self.data}"] if self.data > 1 else []
        parts += [f"EP{self.tensor * self.data}"] if self.expert else []
        return f"{self.replicas} x " * (self.replicas > 1) + " ".join(parts)

    def nodes(self, devices: int) -> int:
        """Return how many nodes of so many devices one engine takes."""
        return -(-self.ranks // usable(self.tensor, devices))

    def tensor_nodes(self, devices: int) -> int:
        """Return how many nodes one tensor-parallel group spans."""
        return -(-self.tensor // usable(self.tensor, devices))


def usable(tensor: int, devices: int) -> int:
    """Return how many devices of a node have ranks: whole tensor groups, or an even part of one."""
    if tensor <= devices:
        return devices - devices % tensor
    return next(tensor // nodes for nodes in range(2, tensor + 1) if _even(tensor, nodes, devices))


def _even(tensor: int, nodes: int, devices: int) -> bool:
    return tensor % nodes == 0 and tensor // nodes <= devices


def candidates(machines: Machines, layers: int, experts: int) -> Iterator[Candidate]:
    """Yield every candidate, each with as many replicas as there is room for.

    Experts are kept whole where there is one stage; data-parallel ranks, which share only their
    experts, stay within a node each. A dense model's data-parallel ranks are replicas.

    Of machines that differ, tensor-parallel groups that fit the least node are tried, stage by
    stage over all of them, and no more than one engine.
    """
    count, devices = len(machines.nodes), min(node.devices for node in machines.nodes)
    if not alike(machines.nodes):
        for tensor in _groups(devices):
            groups = sum(node.devices // tensor for node in machines.nodes)
            for pipeline in range(1, min(groups, layers) + 1):
                yield Candidate(tensor, pipeline)
        return
    across = [devices * nodes for nodes in _divisors(count) if nodes > 1]
    for tensor in (*_groups(devices), *across):
        groups = count * (devices // tensor) if tensor <= devices else count * devices // tensor
        for pipeline in _pipelines(groups, layers):
            yield _placed(Candidate(tensor, pipeline), count, devices)
        if experts and tensor > 1:
            yield _placed(Candidate(tensor, expert=True), count, devices)
        for data in _divisors(groups) if experts and tensor <= devices else ():
            if data > 1:
                yield _placed(Candidate(tensor, data=data, expert=True), count, devices)


def even(one: Candidate, nodes: tuple[Node, ...]) -> bool:
    """Tell whether the stage `plan` builds each engine of a split on these nodes.

    Its nodes are of one kind, each has as many ranks, and each data rank has a port.
    """
    devices = usable(one.tensor, min(node.devices for node in nodes))
    fits = one.ranks <= devices or one.ranks % devices == 0
    return alike(nodes) and one.data <= MOST_DATA and fits


def entries_of(one: Candidate, mixture: bool) -> int:
    """Return how many engines a split is built as.

    Replicas of a dense model are data ranks of one; those of a mixture would share their experts,
    and those with stages would lie on several hosts.
    """
    return one.replicas if mixture or one.pipeline > 1 else 1


def of_experts(
    found: Iterable[Candidate], decided: bool | None, allowed: bool = True
) -> list[Candidate]:
    """Return the splits that keep experts as the user decided, or as the software can.

    decided: whether experts are kept whole, None where the planner may choose. allowed: whether
    the software keeps them whole without data ranks, too.
    """
    splits = list(found)
    if decided:
        wide = {one.tensor for one in splits if one.expert and one.data == 1}
        return [one for one in splits if one.expert or one.pipeline > 1 or one.tensor not in wide]
    if decided is False:
        return [one for one in splits if not one.expert]
    return splits if allowed else [one for one in splits if not one.expert or one.data > 1]


def alike(nodes: tuple[Node, ...]) -> bool:
    """Tell whether all nodes have the same devices."""
    return len({(node.accelerator.name, node.devices) for node in nodes}) == 1


def room(candidate: Candidate, count: int, devices: int) -> int:
    """Return how many such engines fit; one that is larger than a node takes whole nodes."""
    if candidate.ranks <= devices:
        return devices // candidate.ranks * count
    return count // candidate.nodes(devices)


def fitted(wanted: Candidate, machines: Machines) -> Candidate:
    """Return a split that was asked for with no more engines of it than the machines hold.

    Nodes that differ are planned for one engine.
    """
    nodes, least = machines.nodes, min(node.devices for node in machines.nodes)
    most = room(replace(wanted, replicas=1), len(nodes), least) if alike(nodes) else 1
    return replace(wanted, replicas=min(wanted.replicas, max(1, most)))


def _placed(candidate: Candidate, count: int, devices: int) -> Candidate:
    return Candidate(
        candidate.tensor,
        candidate.pipeline,
        candidate.data,
        candidate.expert,
        max(1, room(candidate, count, devices)),
    )


def _pipelines(groups: int, layers: int) -> list[int]:
    most = min(groups, layers)
    return [size for size in range(1, most + 1) if size <= EVERY_PIPELINE or groups % size == 0]


def _groups(devices: int) -> list[int]:
    """Return the sizes of tensor-parallel groups in a node: its divisors and the powers of two."""
    powers = {1 << power for power in range(devices.bit_length())}
    return sorted({*_divisors(devices), *powers})


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
