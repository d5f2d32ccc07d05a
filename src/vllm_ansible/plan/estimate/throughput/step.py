"""The time of one forward pass of one pipeline stage: memory, arithmetic, launches, collectives."""

from __future__ import annotations

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.throughput import constants as c
from vllm_ansible.plan.estimate.throughput.collectives import Links
from vllm_ansible.plan.estimate.throughput.work import LayerWork, Parts, Work


@frozen
class Pass:
    """What goes through the layers at once, on one data-parallel rank.

    `sequences` get one new token each, and each already has `context`; `prompt` tokens of prompts
    are taken in beside them, before each of which `before` others are, in the mean. `all_tokens`
    are the new tokens of all data-parallel ranks.
    """

    sequences: float
    context: float
    all_tokens: float
    prompt: float = 0.0
    before: float = 0.0

    @property
    def tokens(self) -> float:
        """Return the tokens of one rank that are multiplied by the weights."""
        return self.sequences + self.prompt

    @property
    def slowed(self) -> float:
        """Return by how much the part of a prompt lengthens what is multiplied."""
        if not self.prompt:
            return 1.0
        return 1.0 + (1.0 / c.PREFILL_SHARE - 1.0) * self.prompt / self.tokens


@frozen
class Rank:
    """What the engine runs on: the device, its links, and how kernels are launched.

    `old_widening`: 4-bit experts are multiplied by the kernels that came before Marlin's.
    """

    accelerator: Accelerator
    tensor_links: Links
    expert_links: Links
    expert: bool
    eager: bool
    old_widening: bool = False


@frozen
class Terms:
    """Seconds of one pass by cause; `total` is what the pass takes.

    Device terms follow one another; an eager engine takes as long as its launches where those
    take longer than the device.
    """

    memory: float = 0.0
    arithmetic: float = 0.0
    kernels: float = 0.0
    collectives: float = 0.0
    launches: float = 0.0
    total: float = 0.0

    def __add__(self, other: Terms) -> Terms:
        """Return both passes one after the other."""
        return Terms(
            self.memory + other.memory,
            self.arithmetic + other.arithmetic,
            self.kernels + other.kernels,
            self.collectives + other.collectives,
            self.launches + other.launches,
            self.total + other.total,
        )

    def times(self, count: int) -> Terms:
        """Return so many alike passes one after the other."""
        return Terms(
            self.memory * count,
            self.arithmetic * count,
            self.kernels * count,
            self.collectives * count,
            self.launches * count,
            self.total * count,
        )


def stage_pass(work: Work, parts: Parts, head: bool, load: Pass, rank: Rank) -> Terms:
    """Return the terms of one stage with these layers; `head` tells whether it makes the logits."""
    device, memory, arithmetic, kernels, collectives, launches = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for kind, count in parts:
        read, computed = _read(kind, load, rank), _computed(kind, load, rank) * load.slowed
        kept = kind.kernels * c.GRAPH_KERNEL
        talk = _collectives(kind, work.hidden, load, rank)
        # What takes longer hides the other: products read while they multiply.
        memory += count * (read if read >= computed else 0.0)
        arithmetic += count * (computed if computed > read else 0.0)
        kernels += count * kept
        collectives += count * talk
        device += count * (max(read, computed) + kept + talk)
        calls = kind.collectives + (2 if kind.experts_all and rank.expert else 0)
        launches += count * (kind.kernels * c.EAGER_KERNEL + calls * c.EAGER_COLLECTIVE)
    if head:
        # Of a prompt only the last token has logits.
        rows = max(1.0, load.sequences)
        read = work.head_bytes / (rank.accelerator.bandwidth * c.MEMORY_SHARE)
        computed = 2 * work.head_products * rows / _rate(rank.accelerator, 16)
        memory += read
        device += max(read, computed)
    if not rank.eager:
        return Terms(memory, arithmetic, kernels, collectives, 0.0, device)
    waiting = max(0.0, launches - device)
    return Terms(memory, arithmetic, kernels, collectives, waiting, max(device, launches))


def _read(kind: LayerWork, load: Pass, rank: Rank) -> float:
    """Return the seconds in which the weights and the cache of one layer are read."""
    bandwidth = rank.accelerator.bandwidth
    old = c.OLD_WIDENED_MEMORY_SHARE
    time = kind.dense_bytes / (bandwidth * (old if _old(rank, kind.dense_bits) else c.MEMORY_SHARE))
    if kind.experts_all:
        chosen = 1 - (1 - kind.experts_per_token / kind.experts_all) ** max(1.0, load.all_tokens)
        share = old if _old(rank, kind.expert_bits) else c.EXPERT_MEMORY_SHARE
        time += kind.experts * chosen * kind.expert_bytes / (bandwidth * share)
    context = _seen(kind, load.context)
    cache = load.sequences * (kind.cache_bytes * context + kind.state_bytes)
    return time + cache / (bandwidth * c.CACHE_MEMORY_SHARE)


def _computed(kind: LayerWork, load: Pass, rank: Rank) -> float:
    """Return the seconds of the multiply-adds of one layer."""
    device = rank.accelerator
    time = 2 * kind.products * load.tokens / _rate(device, kind.dense_bits)
    if kind.experts_all:
        busy = c.EXPERT_IMBALANCE if rank.expert else 1.0
        each = kind.experts_per_token * kind.experts / kind.experts_all
        products = each * kind.expert_products * load.all_tokens * busy
        time += 2 * products / _expert_rate(rank, kind.expert_bits)
    context, before = _seen(kind, load.context), _seen(kind, load.before)
    share = c.SMALL_HEAD_ATTENTION_SHARE if kind.small_heads else c.ATTENTION_SHARE
    attended = kind.attention_products * load.sequences * context
    attended += kind.prefill_products * load.prompt * before
    return time + 2 * attended / (device.flops["bf16"] * share)


def _seen(kind: LayerWork, tokens: float) -> float:
    """Return how many of the tokens before one it attends to."""
    return min(tokens, kind.window) if kind.window else tokens


def _collectives(kind: LayerWork, hidden: int, load: Pass, rank: Rank) -> float:
    """Return the seconds of one layer's all-reduces, and of its exchange of tokens with experts."""
    size = load.tokens * hidden * 2
    if not (kind.experts_all and rank.expert):
        return kind.collectives * rank.tensor_links.all_reduce(size)
    # Attention reduces over its own ranks; tokens travel to their experts and back.
    ranks = rank.expert_links.ranks / max(1, rank.tensor_links.ranks)
    if ranks <= 1:
        return kind.collectives * rank.tensor_links.all_reduce(size)
    # Quantized activations go out in a byte an element and come back in two.
    out = hidden * (1 if kind.expert_bits < 16 else 2)
    own = load.tokens / max(1, rank.tensor_links.ranks)
    chosen = kind.experts_per_token
    there = rank.expert_links.to_experts(out, own, chosen)
    return (
        rank.tensor_links.all_reduce(size)
        + there
        + rank.expert_links.to_experts(hidden * 2, own, chosen)
    )


def _old(rank: Rank, bits: int) -> bool:
    """Tell whether weights of so few bits are widened here by the kernels before Marlin's."""
    device = rank.accelerator
    return (
        bits == 4 and "fp4" not in device.flops and (rank.old_widening or device.kind == "enflame")
    )


def _rate(device: Accelerator, bits: int) -> float:
    """Return the operations per second of dense products with weights of these bits."""
    name = {8: "fp8", 4: "fp4"}.get(bits, "bf16")
    return device.flops.get(name, device.flops["bf16"]) * c.ARITHMETIC_SHARE


def _expert_rate(rank: Rank, bits: int) -> float:
    """Return the operations per second of grouped products over experts."""
    flops = rank.accelerator.flops
    if _old(rank, bits):
        return flops["bf16"] * c.OLD_WIDENED_EXPERT_ARITHMETIC_SHARE
    if bits == 8 and "fp8" in flops:
        return flops["fp8"] * c.FP8_EXPERT_ARITHMETIC_SHARE
    return flops.get({4: "fp4"}.get(bits, "bf16"), flops["bf16"]) * c.EXPERT_ARITHMETIC_SHARE
