"""Time of collectives among the ranks of one engine: latency and bytes, inside a node or across."""

from __future__ import annotations

from math import ceil, log2

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.machines import Fabric
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.throughput import constants as c


@frozen
class Links:
    """What `ranks` ranks of one group have between them, on `nodes` nodes.

    Rates are bytes per second that one rank can send; latencies are seconds of one collective.
    `link` is a device's link where vLLM reduces small sizes by a kernel of its own, else 0;
    `slower` is how many times as long that takes as on Hopper.
    """

    ranks: int
    nodes: int
    inside_rate: float
    exchange_rate: float
    inside_latency: float
    across_rate: float
    across_latency: float
    link: float = 0.0
    slower: float = 1.0

    def all_reduce(self, size: float) -> float:
        """Return the seconds of an all-reduce of `size` bytes on each rank."""
        if self.link and size < c.OWN_MOST:
            return self._own(size) * self.slower
        return self.by_library(size)

    def _own(self, size: float) -> float:
        """Return the seconds of vLLM's own kernel."""
        others = self.ranks - 1
        if size < c.OWN_ONE_STAGE[self.ranks]:
            latency = c.OWN_LATENCY + c.OWN_LATENCY_PER_RANK * self.ranks
            return latency + others * size / (self.link * c.OWN_SHARE)
        return c.OWN_TWO_LATENCY + 2 * others / self.ranks * size / (self.link * c.OWN_TWO_SHARE)

    def by_library(self, size: float) -> float:
        """Return the seconds of the collective library's all-reduce."""
        if self.ranks == 1:
            return 0.0
        per_node = self.ranks / self.nodes
        time = self.inside_latency
        if per_node > 1:
            time += 2 * (per_node - 1) / per_node * size / self.inside_rate
        if self.nodes > 1:
            time += self.across_latency
            time += 2 * (self.nodes - 1) / self.nodes * size / self.across_rate
        return time

    def gather(self, size: float) -> float:
        """Return the seconds in which each rank gets the parts of all, `size` bytes together.

        NCCL's all-gather sends what one of the two halves of its all-reduce does.
        """
        return self.by_library(size / 2)

    def to_experts(self, row: float, tokens: float, chosen: int) -> float:
        """Return the seconds in which each rank sends its tokens to the ranks of their experts.

        row: bytes of one token; chosen: experts of each token. A token crosses the network once for
        each node, and a link once for each rank, however many of its experts are there.
        """
        if self.ranks == 1:
            return 0.0
        nodes = _distinct(self.nodes, chosen) * (self.nodes - 1) / self.nodes
        here = _distinct(self.ranks, chosen) * (1 - 1 / self.ranks)
        time = max(c.EXCHANGE_LATENCY, self.inside_latency / 2)
        time += row * tokens * here / self.exchange_rate
        if self.nodes > 1:
            per_node = self.ranks / self.nodes
            time += self.across_latency / 2 + row * tokens * nodes * per_node / self.across_rate
        return time


def _distinct(places: int, draws: int) -> float:
    """Return how many different places so many draws hit."""
    return places * (1 - (1 - 1 / places) ** draws)


def links(accelerator: Accelerator, fabric: Fabric, ranks: int, nodes: int) -> Links:
    """Return the links of a group; a measured fabric replaces the rate of its cards."""
    per_node = max(1, ranks // nodes)
    if accelerator.peer_to_peer:
        latency = c.LINK_LATENCY + c.LINK_LATENCY_PER_RANK * per_node
        inside, exchange = c.LINK_SHARE, c.EXCHANGE_SHARE
        if accelerator.link < c.SWITCHED:
            measured = accelerator.link >= c.PCIE_5 and platform(accelerator.kind).own_all_reduce
            inside = exchange = c.PCIE_5_SHARE if measured else c.PCIE_SHARE
    else:
        latency = c.LINK_LATENCY + c.HOST_LATENCY_PER_RANK * per_node
        inside = exchange = c.HOST_SHARE
    hop = c.TCP_HOP_LATENCY if fabric.tcp else c.HOP_LATENCY
    share = c.TCP_SHARE if fabric.tcp else c.FABRIC_SHARE
    rate = fabric.measured or fabric.node_rate * share
    own = (
        accelerator.peer_to_peer
        and platform(accelerator.kind).own_all_reduce
        and nodes == 1
        and ranks in c.OWN_RANKS
        and (ranks == min(c.OWN_RANKS) or accelerator.link >= c.SWITCHED)
    )
    return Links(
        ranks=ranks,
        nodes=nodes,
        inside_rate=accelerator.link * inside,
        exchange_rate=accelerator.link * exchange,
        inside_latency=latency if per_node > 1 else 0.0,
        across_rate=rate,
        across_latency=2 * ceil(log2(nodes)) * hop + c.LINK_LATENCY if nodes > 1 else 0.0,
        link=accelerator.link if own else 0.0,
        slower=c.OWN_ON_BLACKWELL if blackwell(accelerator) else 1.0,
    )


def blackwell(accelerator: Accelerator) -> bool:
    """Tell whether a device is of NVIDIA's generation after Hopper."""
    return platform(accelerator.kind).own_fp4_kernels and "fp4" in accelerator.flops
