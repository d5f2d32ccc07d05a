"""What slots for LoRA adapters take: buffers for every linear layer, whatever an adapter changes.

Read from vLLM 0.32's `BaseLinearLayerWithLoRA` and `FusedMoEWithLoRA`: an adapter's first matrix is
whole on every rank where its layer's outputs are divided, the second one where its inputs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Layer, Tensor
from vllm_ansible.plan.estimate.memory.split import Split

# Adapters are held in the model's own precision.
ELEMENT = 2
# Projections that vLLM joins, each with an adapter of its own; and the norm before a projection
# whose inputs are not the hidden state.
JOINED = {"qkv_proj": 3, "gate_proj": 2, "q_a_proj": 2}
BEFORE = {"q_b_proj": "q_a_layernorm", "kv_b_proj": "kv_a_layernorm"}


@frozen
class Slots:
    """So many adapters at once, each of at most this rank."""

    number: int = 1
    rank: int = 16


def slot_bytes(layers: Iterable[Layer], split: Split, slots: Slots) -> float:
    """Return the bytes of all slots for some layers on one rank."""
    known: dict[int, float] = {}
    total = 0.0
    for layer in layers:
        key = id(layer.tensors)
        if key not in known:
            known[key] = sum(_widths(layer, split))
        total += known[key]
    return slots.number * slots.rank * ELEMENT * total


def _widths(layer: Layer, split: Split) -> Iterator[float]:
    """Yield inputs and outputs of each linear layer of a rank, as far as the rank has them."""
    sizes = {one.name.rpartition(".")[2]: one.elements for one in layer.tensors}
    for one in layer.tensors:
        module, _, end = one.name.rpartition(".")
        name = module.rpartition(".")[2]
        if end != "weight" or one.role in ("norm", "router", "other") or "conv1d" in name:
            continue
        if one.role == "experts":
            yield _of_experts(one, layer, name, split.tensor)
            continue
        if one.shard == "row":
            yield ceil(one.elements / layer.hidden / split.tensor) + layer.hidden
            continue
        inputs = sizes.get(BEFORE.get(name, ""), layer.hidden)
        ranks = split.tensor if one.shard == "column" else 1
        yield JOINED.get(name, 1) * inputs + ceil(one.elements / inputs / ranks)


def _of_experts(one: Tensor, layer: Layer, name: str, ranks: int) -> float:
    """Return the same of all experts; w13 are two projections, w2 is one back."""
    outputs = one.elements / layer.experts / layer.hidden
    if name.endswith("w13"):
        return layer.experts * (2 * layer.hidden + ceil(outputs / ranks))
    return layer.experts * (layer.hidden + ceil(outputs / ranks))
