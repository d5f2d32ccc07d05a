"""Machines to plan for: nodes full of devices and the network between them, from one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.accelerator import Accelerator, accelerator
from vllm_ansible.accelerators.instances import (
    EFA,
    InstanceType,
    instance_type,
    is_instance_type,
)
from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem

EXAMPLE = "4x8 H100-80, or 4x8 H100-80 @ 8x400Gb, or 2x8 H100-80 + 1x8 H200, or 2x p5.48xlarge"
GROUP = re.compile(r"(-?\d+)\s*x\s*(-?\d+)\s+(.+)")
RENTED = re.compile(r"(-?\d+)\s*x\s*(\S+)")
FABRIC = re.compile(
    r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*(Gb|GB)(?:/s)?(?:\s+(tcp))?", re.IGNORECASE
)
MOST = 65536
BITS = 8


@frozen
class Node:
    """One host and its devices, all of one kind."""

    name: str
    accelerator: Accelerator
    devices: int


@frozen
class Fabric:
    """The network between nodes: bytes per second of all cards of one node, in one direction.

    `tcp` says that collectives run over sockets. `measured` is the bus bandwidth, in bytes per
    second, that a check saw for an all-reduce over all nodes, None before any. `assumed` tells
    that nobody named the cards.
    """

    node_rate: float
    tcp: bool = False
    measured: float | None = None
    assumed: bool = False


@frozen
class Machines:
    """Nodes in the order in which ranks are numbered, and what joins them."""

    nodes: tuple[Node, ...]
    fabric: Fabric

    @property
    def devices(self) -> int:
        """Return how many devices all nodes have together."""
        return sum(node.devices for node in self.nodes)

    def line(self) -> str:
        """Return the machines as the line that names them."""
        groups: list[tuple[int, int, str]] = []
        for node in self.nodes:
            same = groups and groups[-1][1:] == (node.devices, node.accelerator.name)
            count = groups.pop()[0] + 1 if same else 1
            groups.append((count, node.devices, node.accelerator.name))
        return " + ".join(f"{count}x{devices} {name}" for count, devices, name in groups)


def machines(line: str, own: Mapping[str, Mapping[str, Any]] | None = None) -> Machines:
    """Return the machines of a line: `NODESxDEVICES NAME [+ ...] [@ [CARDSx]RATE(Gb|GB) [tcp]]`.

    In place of devices and name a group may have a type of instance: `2x p5.48xlarge`, whose
    network is known where all groups have one. Raises PlanError, one sentence, for a line that
    says something else, an accelerator or a type nobody knows, or a count that is not positive.
    """
    text, at, network = line.partition("@")
    nodes: list[Node] = []
    types: list[InstanceType | None] = []
    for part in text.split("+"):
        count, devices, name, rented = _group(line, part.strip())
        types.append(rented)
        if count < 1 or devices < 1 or count * devices > MOST:
            raise PlanError(
                Problem(
                    f"machines {part.strip()!r} have {count} nodes of {devices} devices, and both "
                    f"must be at least 1 with at most {MOST} devices in all",
                    fix=f"write {EXAMPLE}",
                )
            )
        kind = accelerator(name, own)
        start = len(nodes) + 1
        nodes += [Node(f"node-{start + place}", kind, devices) for place in range(count)]
    return Machines(tuple(nodes), _fabric(line, network) if at else _unnamed(nodes, types))


def _group(line: str, part: str) -> tuple[int, int, str, InstanceType | None]:
    """Return nodes, devices of each, what these are called, and the type where one is named."""
    rented = RENTED.fullmatch(part)
    if rented and is_instance_type(rented[2]):
        kind = instance_type(rented[2])
        return int(rented[1]), kind.devices, kind.accelerator, kind
    match = GROUP.fullmatch(part)
    if match is None:
        raise PlanError(_unreadable(line, part))
    return int(match[1]), int(match[2]), match[3].strip(), None


def _unnamed(nodes: list[Node], types: list[InstanceType | None]) -> Fabric:
    """Return the network where the line names none: that of the types, the least machine's."""
    known = [one for one in types if one]
    if not known or len(known) < len(types):
        return usual_fabric(nodes)
    rate = min(one.node_rate for one in known)
    return Fabric(rate, tcp=any(one.fabric != EFA for one in known))


def usual_fabric(nodes: list[Node] | tuple[Node, ...]) -> Fabric:
    """Return the network that such nodes usually have: one card for each device, the least node's.

    A node with one link rate per device is the pattern of HGX and MGX reference designs; hosts
    with consumer cards are taken to have one 10 Gb/s port.
    """
    rates = [
        node.accelerator.card * (node.devices if node.accelerator.peer_to_peer else 1)
        for node in nodes
    ]
    slow = any(not node.accelerator.peer_to_peer for node in nodes)
    return Fabric(float(min(rates)), tcp=slow, assumed=True)


def _fabric(line: str, text: str) -> Fabric:
    match = FABRIC.fullmatch(text.strip())
    if match is None or float(match[2]) <= 0 or match[1] == "0":
        raise PlanError(_unreadable(line, text.strip()))
    rate = float(match[2]) * 1e9 / (BITS if match[3] == "Gb" else 1)
    return Fabric(rate * int(match[1] or 1), tcp=bool(match[4]))


def _unreadable(line: str, part: str) -> Problem:
    return Problem(
        f"machines {line!r} cannot be read at {part!r}",
        expected=EXAMPLE,
        found=line,
        fix=f"write {EXAMPLE}",
    )
