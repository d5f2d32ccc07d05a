"""The time of one forward pass of one pipeline stage: memory, arithmetic, launches, collectives."""

from __future__ import annotations

from math import log, sqrt

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.throughput import constants as c
from vllm_ansible.plan.estimate.throughput.collectives import Links, blackwell
from vllm_ansible.plan.estimate.throughput.work import LayerWork, Parts, Work

HOPPER, ADA = 9.0, 8.9
# From here on NVIDIA's graphics cards, whose tensor cores have neither wgmma nor tcgen05.
GRAPHICS_BLACKWELL = 12.0
LARGE_HEAD = 128
# The bits of weights that are not quantized.
HALF = 16
# An expert's gate, up and down projections.
EXPERT_MATRICES = 3


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
    `whole_choice`: sparse attention multiplies as many tokens as it may choose, however few there
    are. `sampling`: how often the bytes of the logits are read and written to sample. `machete`:
    dense integers of 4 bits are multiplied by Machete's kernels where the device has them.
    """

    accelerator: Accelerator
    tensor_links: Links
    expert_links: Links
    expert: bool
    eager: bool
    old_widening: bool = False
    whole_choice: bool = False
    sampling: float = c.SAMPLING
    machete: bool = True


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


def stage_pass(
    work: Work, parts: Parts, head: bool, load: Pass, rank: Rank, first: bool = False
) -> Terms:
    """Return the terms of one stage with these layers.

    `head` tells whether it makes the logits, `first` whether it looks up the tokens, each rank a
    part of the vocabulary.
    """
    device, memory, arithmetic, kernels, collectives, launches = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for kind, count in parts:
        read, computed = weights_time(kind, load, rank)
        cached, attended = cache_time(kind, load, rank), _attended_time(kind, load, rank)
        held, multiplied = experts_time(kind, work.hidden, load, rank)
        kept = kernels_time(kind, rank.accelerator)
        if _machete(kind, rank):
            # Each clears the barriers of its stream-K first (CUTLASS's `initialize_workspace`).
            kept += kind.launched.products * c.SMALL_KERNEL
            read += kind.launched.products * c.MACHETE_SHARING
        talk = _collectives(kind, work.hidden, load, rank)
        # What takes longer hides the other: products read while they multiply.
        dense = hidden_time(read, computed, rank.accelerator)
        seen = max(cached, attended)
        memory += count * (dense * (read >= computed) + seen * (cached >= attended) + held)
        arithmetic += count * (dense * (computed > read) + seen * (attended > cached) + multiplied)
        kernels += count * kept
        collectives += count * talk
        device += count * (dense + seen + held + multiplied + kept + talk)
        calls = kind.collectives + (2 if kind.experts_all and rank.expert else 0)
        launches += count * (kind.kernels * c.EAGER_KERNEL + calls * c.EAGER_COLLECTIVE)
    if first and rank.tensor_links.ranks > 1:
        talk = rank.tensor_links.all_reduce(load.tokens * work.hidden * 2)
        collectives, device = collectives + talk, device + talk
    if head:
        # Of a prompt only the last token has logits.
        rows = max(1.0, load.sequences)
        bandwidth = rank.accelerator.bandwidth * _memory_share(rank.accelerator)
        computed = 2 * work.head_products * rows / _rate(rank.accelerator, 16)
        logits = rows * work.vocabulary * 2
        read = work.head_bytes / bandwidth
        # Those of several ranks are read and written once more, which puts them in order.
        passes, talk = rank.sampling, 0.0
        if rank.tensor_links.ranks > 1:
            passes, talk = passes + 2, rank.tensor_links.gather(logits)
        passes *= logits / bandwidth
        memory += read + passes
        collectives += talk
        device += hidden_time(read, computed, rank.accelerator) + passes + talk
    if not rank.eager:
        return Terms(memory, arithmetic, kernels, collectives, 0.0, device)
    waiting = max(0.0, launches - device)
    return Terms(memory, arithmetic, kernels, collectives, waiting, max(device, launches))


def hidden_time(read: float, computed: float, device: Accelerator) -> float:
    """Return the seconds of products that read and multiply, one behind the other."""
    if not _ampere(device):
        return max(read, computed)
    power = c.ADA_HIDING if device.capability == ADA else c.HIDING
    return float((read**power + computed**power) ** (1 / power))


def _ampere(device: Accelerator) -> bool:
    """Tell whether a device is of a generation before Hopper."""
    return device.capability is not None and device.capability < HOPPER


def _by_mma(device: Accelerator) -> bool:
    """Tell whether tensor cores have no other instruction than Marlin's, and reach all by it."""
    return _ampere(device) or _graphics(device)


def _graphics(device: Accelerator) -> bool:
    """Tell whether a device is one of Blackwell's graphics cards."""
    return (device.capability or 0.0) >= GRAPHICS_BLACKWELL


def _memory_share(device: Accelerator, bits: int = 16) -> float:
    """Return the share of the bandwidth at which dense weights of these bits are read."""
    if device.capability == ADA and bits == HALF:
        return c.ADA_MEMORY_SHARE
    return c.AMPERE_MEMORY_SHARE if _ampere(device) else c.MEMORY_SHARE


def kernels_time(kind: LayerWork, device: Accelerator) -> float:
    """Return the seconds that one layer's captured kernels take beside their bytes."""
    product, call = c.PRODUCT_KERNEL, c.ATTENTION_CALL
    if _ampere(device):
        if device.capability != ADA:
            product, call = c.AMPERE_PRODUCT_KERNEL, c.AMPERE_ATTENTION_CALL
    elif blackwell(device):
        call = c.BLACKWELL_ATTENTION_CALL
    made = kind.launched
    return (
        made.products * product
        + made.attention * call
        + made.small * c.SMALL_KERNEL
        + made.experts * c.EXPERTS_KERNEL
    )


def weights_time(kind: LayerWork, load: Pass, rank: Rank) -> tuple[float, float]:
    """Return the seconds of reading one layer's dense weights, and of their products."""
    device = rank.accelerator
    old = _old(rank, kind.dense_bits)
    share = c.OLD_WIDENED_MEMORY_SHARE if old else _memory_share(device, kind.dense_bits)
    rate = _rate(device, kind.dense_bits, kind.widened and not old, kind.integers)
    if _machete(kind, rank):
        rate = device.flops["bf16"] * c.ARITHMETIC_SHARE
    size, products, more, further = kind.dense_bytes, kind.products, 0.0, 0.0
    if not load.prompt:
        size, products = size - kind.raw, products - kind.raw_products
        more = kind.absorbed / (device.bandwidth * _memory_share(device))
        further = 2 * kind.absorbed_products * load.tokens / _rate(device, 16)
    computed = 2 * products * load.tokens / rate * load.slowed
    return size / (device.bandwidth * share) + more, computed + further


def cache_time(kind: LayerWork, load: Pass, rank: Rank) -> float:
    """Return the seconds in which decoding sequences read their cache."""
    device = rank.accelerator
    context = _seen(kind, load.context)
    each = kind.cache_bytes * context + kind.state_bytes
    each += kind.chosen_bytes * min(context, kind.chosen)
    share, item = c.CACHE_MEMORY_SHARE, 0.0
    if kind.items:
        share, item = c.GROUPED_CACHE_SHARE, c.GROUPED_CACHE_ITEM
        if _ampere(device):
            share, item = c.AMPERE_GROUPED_CACHE_SHARE, c.AMPERE_GROUPED_CACHE_ITEM
        elif blackwell(device):
            share, item = c.BLACKWELL_GROUPED_CACHE_SHARE, c.BLACKWELL_GROUPED_CACHE_ITEM
    return load.sequences * (each / (device.bandwidth * share) + kind.items * item)


def _attended_time(kind: LayerWork, load: Pass, rank: Rank) -> float:
    """Return the seconds of the multiply-adds of one layer's attention."""
    device, time = rank.accelerator, 0.0
    dense = device.flops["bf16"]
    context, before = _seen(kind, load.context), _seen(kind, load.before)
    decoded = kind.attention_products * load.sequences
    prompt = kind.prefill_products * load.prompt
    if kind.chosen:
        attended = decoded * min(context, kind.chosen) + prompt * _mean_chosen(kind, before)
        if rank.whole_choice:
            attended = (decoded + prompt) * kind.chosen
        time += 2 * attended / (dense * c.SPARSE_ATTENTION_SHARE)
        scored = kind.index_products * (load.sequences * context + load.prompt * before)
        return time + 2 * scored / (device.flops.get("fp8", dense) * c.INDEXER_SHARE)
    time += 2 * decoded * context / (dense * c.ATTENTION_SHARE)
    if prompt and before:
        time += 2 * prompt * before / (dense * attention_share(kind, load, device))
    return time


def _mean_chosen(kind: LayerWork, before: float) -> float:
    """Return how many tokens those of a prompt see in the mean, where no more than some are."""
    length = 2 * before
    if length <= kind.chosen:
        return before
    return kind.chosen - kind.chosen**2 / (2 * length)


def attention_share(kind: LayerWork, load: Pass, device: Accelerator) -> float:
    """Return the share of the dense rate at which attention over a prompt multiplies."""
    size = min(c.ATTENTION, key=lambda size: abs(size - kind.head_size))
    most, half = c.ATTENTION[size]
    if _ampere(device):
        # Of Ampere heads of 128 were timed; others are taken to differ as they do on Hopper.
        share, half = c.AMPERE_ATTENTION
        most *= share / c.ATTENTION[LARGE_HEAD][0]
    # In the mean half of a prompt is before each of its tokens.
    length = 2 * load.before
    share = most * length / (length + half)
    return min(share, c.AMPERE_SINK_ATTENTION) if kind.sinks and _ampere(device) else share


def experts_time(kind: LayerWork, hidden: int, load: Pass, rank: Rank) -> tuple[float, float]:
    """Return the seconds of reading one layer's experts and of multiplying with them."""
    if not kind.experts_all:
        return 0.0, 0.0
    device, bandwidth = rank.accelerator, rank.accelerator.bandwidth
    part = kind.experts_per_token / kind.experts_all
    touched = kind.experts * (1 - (1 - part) ** max(1.0, load.all_tokens))
    rows = load.all_tokens * part * kind.experts
    if rank.expert:
        rows = busiest(rows, rank.expert_links.ranks)
    size = touched * kind.expert_bytes
    if _old(rank, kind.expert_bits):
        read = size / (bandwidth * c.OLD_WIDENED_MEMORY_SHARE)
        rate = device.flops["bf16"] * c.OLD_WIDENED_EXPERT_ARITHMETIC_SHARE
        computed = 2 * rows * kind.expert_products / rate
        return (read, 0.0) if read > computed else (0.0, computed)
    name, rate = _experts_kind(kind, device)
    memory, arithmetic, half, tile = c.EXPERTS[name]
    width = kind.expert_products / (EXPERT_MATRICES * hidden)
    rate *= arithmetic * width / (width + half)
    moved = rows * (3 * hidden + 4 * width) * 2 / (bandwidth * c.MEMORY_SHARE)
    computed = 2 * (rows + touched * tile) * kind.expert_products / rate
    return size / (bandwidth * memory), computed + moved


def busiest(mean: float, ranks: int) -> float:
    """Return the tokens of the busiest of these ranks, whose mean is given.

    Experts that are chosen more often than others, and chance: of as many draws of a Poisson
    distribution the largest lies sqrt(2 ln n) deviations above the mean.
    """
    chance = sqrt(2 * log(ranks) / mean) if mean > 0 else 0.0
    return mean * min(float(ranks), c.EXPERT_IMBALANCE * (1 + chance)) if ranks > 1 else mean


def _experts_kind(kind: LayerWork, device: Accelerator) -> tuple[str, float]:
    """Return which kernels multiply with a layer's experts, and the rate that bounds them."""
    flops, bits = device.flops, kind.expert_bits
    if _ampere(device):
        return "ampere bf16" if bits == 16 else "ampere marlin", flops["bf16"]
    new, graphics = "blackwell " if blackwell(device) else "", _graphics(device)
    if new and kind.mxfp4 and not graphics:
        return "blackwell mxfp4", flops["bf16"]
    widened = kind.integers or (kind.mxfp4 and graphics) or "fp4" not in flops
    if bits == 4 and widened:
        marlin = "ampere marlin" if _by_mma(device) else "marlin"
        return "mxfp4" if kind.triton else marlin, flops["bf16"]
    name = {8: "fp8", 4: "fp4"}.get(bits, "bf16")
    if name not in flops:
        return "bf16", flops["bf16"]
    if name == "fp4" and not new:
        return "fp8", flops["fp4"]
    if name == "fp8" and kind.cutlass and not new:
        return "cutlass fp8", flops["fp8"]
    if graphics and name == "bf16":
        new = ""
    return f"{new}{name}", flops[name]


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
        max(0, kind.collectives - 1) * rank.tensor_links.all_reduce(size)
        + there
        + rank.expert_links.to_experts(hidden * 2, own, chosen)
    )


def _old(rank: Rank, bits: int) -> bool:
    """Tell whether weights of so few bits are widened here by the kernels before Marlin's."""
    device = rank.accelerator
    return (
        bits == 4
        and "fp4" not in device.flops
        and (rank.old_widening or platform(device.kind).old_widening)
    )


def _machete(kind: LayerWork, rank: Rank) -> bool:
    """Tell whether a layer's dense weights are multiplied by Machete's kernels: Hopper's alone."""
    integers = kind.integers and kind.dense_bits == 4
    return rank.machete and integers and rank.accelerator.capability == HOPPER


def _rate(device: Accelerator, bits: int, widened: bool = False, integers: bool = False) -> float:
    """Return the operations per second of dense products with weights of these bits.

    widened: Marlin's kernels widen those that the device has no products for, as it has none for
    `integers` of 4 bits.
    """
    name = {8: "fp8", 4: "fp4"}.get(bits, "bf16")
    if name not in device.flops or (integers and name == "fp4"):
        share = c.ARITHMETIC_SHARE
        if widened and platform(device.kind).widens and name != "bf16":
            share = c.AMPERE_MARLIN_SHARE if _by_mma(device) else c.MARLIN_SHARE
        return device.flops["bf16"] * share
    shares = c.GRAPHICS_ARITHMETIC_SHARES if _graphics(device) else c.ARITHMETIC_SHARES
    return device.flops[name] * shares[name]
