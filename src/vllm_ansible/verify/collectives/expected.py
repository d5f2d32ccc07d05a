"""What an all-reduce should give on these machines, from published figures or by the ring rule.

Across nodes a ring carries at most what all cards of one node do together, and at most what the
ring gives inside a node. Two nodes with NCCL's own choice show more than either (a tree counts
less traffic: https://github.com/NVIDIA/nccl-tests/issues/196), so two nodes are judged as a ring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.instances import instance_types
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.frozen import frozen
from vllm_ansible.verify.collectives.transport import EFA, P2P
from vllm_ansible.verify.collectives.transport_verdict import ExpectedTransport, inside_ways

DATA = Path(__file__).with_name("expected.json")
BITS = 8
GB = 1e9
# What a virtual interface reports is a constant of its driver, not a rate: veth says 10 Gb/s.
VIRTUAL = ("veth", "tun", "bridge", "bonding", "team", "dummy", "ipvlan", "macvlan", "vxlan")
# Sold with the memory of H100 and A100 and fewer links: 8 x H800 give 215 GB/s
# (https://github.com/NVIDIA/nccl/issues/1374)
FEWER_LINKS = ("H800", "A800")
PARAVIRTUAL = ("virtio_net", "vmxnet3", "xen_netfront")


@frozen
class Expectation:
    """GB/s of bus bandwidth, and the GB/s under which a run fails or is warned about."""

    busbw: float
    fail_below: float
    warn_below: float
    source: str
    ring_only: bool = False


class NodeLinks(NamedTuple):
    """A node as a ring sees it: its devices, and GB/s of all its network cards together.

    `ring` is the bus bandwidth measured inside it with NCCL_ALGO=RING, used where no figure is
    published; `driver_name` tells a part with fewer links.
    """

    accelerator: Accelerator
    devices: int
    cards: float
    driver_name: str = ""
    ring: float | None = None


@lru_cache(maxsize=1)
def figures() -> Mapping[str, Any]:
    """Return the data that comes with this project."""
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=1)
def machine_types() -> Mapping[str, Mapping[str, Any]]:
    """Return the types of machines that come with a fabric, by the name that a host has of it."""
    rented = {name: asdict(one) for name, one in instance_types().items() if one.fabric}
    return {**rented, **figures()["machines"]}


def inside_node(
    accelerator: Accelerator,
    devices: int,
    nvls: bool,
    machine: str | None = None,
    driver_name: str = "",
) -> Expectation | None:
    """Return what an all-reduce over the devices of one node gives, None where nobody knows.

    nvls: whether NVLink SHARP was there to be chosen (`nvls channels` above 0, no NCCL_ALGO).
    machine: a type whose vendor publishes a threshold of its own; under it a run is a warning.
    driver_name: as the driver names the devices, which tells a part with fewer links.
    """
    row = _inside(accelerator.name, devices, nvls, driver_name)
    known = machine_types().get(machine or "", {})
    vendor = known.get("vendor_threshold") if known.get("devices") == devices and nvls else None
    if row is not None:
        return _expectation(row["busbw"], "accelerators", row["source"], least_warning=vendor or 0)
    if vendor is not None:
        return _expectation(vendor, "accelerators", f"the vendor's threshold for {machine}")
    return None


def cards_rate(machine: str | None, accelerator: Accelerator, devices: int) -> float:
    """Return GB/s of all network cards of a node: of its type, else one usual card for a device.

    The latter is a guess: where the ports tell their rate
    (/sys/class/infiniband/NAME/ports/1/rate), their sum is the better answer.
    """
    known = machine_types().get(machine or "")
    if known:
        return float(known["cards"] * known["card_gbit"] / BITS)
    return accelerator.card * devices / GB


def across_nodes(
    nodes: Sequence[NodeLinks | tuple[Accelerator, int, float]],
) -> Expectation | None:
    """Return what a ring over these nodes gives, by the slowest of them.

    None where only a kept run can tell: nobody published figures of such devices, or nothing is
    known of their ring inside a node and no switch makes it faster than the cards.
    """
    limits = []
    known = [NodeLinks(*node) for node in nodes]
    for node in known:
        if not platform(node.accelerator.kind).published:
            return None
        limits.append((node.cards, f"all cards of a node carry {node.cards:g} GB/s"))
        figure = _inside(node.accelerator.name, node.devices, False, node.driver_name)
        if figure is not None:
            limits.append((float(figure["busbw"]), f"the ring inside a node: {figure['source']}"))
        elif node.ring is not None:
            limits.append((node.ring, "the ring inside a node, as measured"))
        elif node.devices > 1 and not _switched(node):
            return None
    busbw, source = min(limits)
    alone = all(node.devices == 1 for node in known)
    return _expectation(busbw, "accelerators", source, ring_only=len(nodes) == 2 and not alone)


def over_tcp(link: float | None) -> Expectation | None:
    """Return what collectives over sockets give, None where only a baseline can tell.

    link: GB/s of the Ethernet link of a node, as `believable` returns it.
    """
    tcp = figures()["tcp"]
    if link is None or link > tcp["most_gbit"] / BITS:
        return None
    return _expectation(link * tcp["share"], "tcp", tcp["share_source"])


def believable(speed_mbit: int | None, driver: str | None, physical: bool) -> float | None:
    """Return the GB/s of an interface, None where what it reports is no rate of a link.

    speed_mbit: /sys/class/net/NAME/speed, -1 or None where it says nothing. driver: the name its
    device/driver link ends in. physical: whether /sys/class/net/NAME/device exists.
    """
    if speed_mbit is None or speed_mbit <= 0 or not physical:
        return None
    if driver in VIRTUAL or driver in PARAVIRTUAL:
        return None
    return speed_mbit * 1e6 / BITS / GB


def expected_transport(
    machine: str | None,
    accelerator: Accelerator | None,
    link_layers: Sequence[str] = (),
    driver_name: str = "",
    efa: int = 0,
) -> ExpectedTransport:
    """Return what a machine type should use; of an unknown type, what its own cards say.

    efa: how many EFA cards a node has. link_layers: of every active RDMA port of a node,
    `InfiniBand` or `Ethernet` (/sys/class/infiniband/NAME/ports/1/link_layer); none means that
    sockets are right.
    """
    inside = inside_ways(accelerator, driver_name) if accelerator else ("P2P", "SHM")
    known = machine_types().get(machine or "")
    if known:
        return ExpectedTransport(known["fabric"], known["cards"], inside, direct=True)
    if efa:
        # Whether these carry device memory by themselves depends on the type.
        return ExpectedTransport(EFA, efa, inside, direct=False)
    if not link_layers:
        return ExpectedTransport("socket", None, inside)
    fabric = "infiniband" if "InfiniBand" in link_layers else "roce"
    return ExpectedTransport(fabric, None, inside, direct=False)


def _switched(node: NodeLinks) -> bool:
    """Return whether all devices of a node reach each other at the whole rate of their links."""
    whole = not any(part in node.driver_name.split() for part in FEWER_LINKS)
    return whole and inside_ways(node.accelerator, node.driver_name) == (P2P,)


def _inside(name: str, devices: int, nvls: bool, driver_name: str = "") -> Mapping[str, Any] | None:
    if any(part in driver_name.split() for part in FEWER_LINKS):
        return None
    rows: list[Mapping[str, Any]] = figures()["inside"]
    same = [row for row in rows if (row["accelerator"], row["devices"]) == (name, devices)]
    return next((row for row in same if row["nvls"] == nvls), None)


def _expectation(
    busbw: float,
    kind: str,
    source: str,
    ring_only: bool = False,
    least_warning: float = 0,
) -> Expectation:
    shares = figures()["thresholds"][kind]
    warn = max(busbw * shares["warn"], least_warning)
    return Expectation(busbw, busbw * shares["fail"], warn, source, ring_only)
