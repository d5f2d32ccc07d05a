"""The bytes of weights on each rank, by stage, as vLLM shards, replicates and pads.

The rules are those of vLLM 0.32's layers: `ColumnParallelLinear`, `QKVParallelLinear` (KV heads are
replicated once tensor parallelism exceeds them), `FusedMoEParallelConfig` (without expert
parallelism experts are split over tensor x data), `VocabParallelEmbedding`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from vllm_ansible.plan.estimate.architectures.model import Layer, Model, Tensor
from vllm_ansible.plan.estimate.memory.kernels import USUAL, Kernels, held
from vllm_ansible.plan.estimate.memory.release import Release, release
from vllm_ansible.plan.estimate.memory.split import Split, stages

ABSORBED = "kv_b_absorbed"
# From here on a head that a tied checkpoint stores is loaded (vllm#51665): a log of 0.29.0 shows
# it; whether 0.28 does is not known.
OWN_HEAD: Release = (0, 29, 0)
MIB = 2**20
# From here on engines load with `max_split_size_mb` 20 (vllm#41268; 0.20.2 does not, vllm#43951).
UNSPLIT: Release = (0, 21, 0)
# vLLM holds these three as one parameter (`QKVParallelLinear`).
FUSED = re.compile(r"\b[qkv]_proj\b")


def share(tensor: Tensor, split: Split, kernels: Kernels = USUAL) -> float:
    """Return the bytes of one tensor on the rank that holds most of it."""
    if tensor.shard == "replicated":
        return tensor.bytes
    if tensor.shard == "experts":
        return _expert_share(tensor, split, kernels)
    if tensor.role == "shared_expert" and _sequence_parallel(split):
        return tensor.bytes
    return tensor.bytes * _units(tensor, split.tensor) / tensor.units


def _allocated(tensors: Iterable[Tensor], split: Split, kernels: Kernels) -> float:
    """Return what PyTorch's caching allocator hands out for the rank's parts of some tensors.

    From 10 MiB on a segment is rounded to 2 MiB, and a rest of 1 MiB or less stays with the block
    (`CUDACachingAllocator.cpp`: `get_allocation_size`, `should_split`). While newer engines load,
    blocks of 20 MiB and more are not split (`gpu_worker.py`), so any rest of theirs stays. The
    engine prints these bytes. What is smaller is dealt from larger segments and taken as it is.
    """
    sizes: dict[str, float] = {}
    for one in tensors:
        name = FUSED.sub("qkv_proj", one.name)
        sizes[name] = sizes.get(name, 0.0) + share(one, split, kernels)
    if kernels.kind not in ("cuda", "rocm"):
        return sum(sizes.values())
    return sum(_block(size, kernels.version) for size in sizes.values())


def _block(size: float, version: Release) -> float:
    segment = ceil(size / (2 * MIB)) * 2 * MIB
    whole = version >= UNSPLIT and size >= 20 * MIB
    return segment if whole or (size >= 10 * MIB and segment - size <= MIB) else size


def _expert_share(tensor: Tensor, split: Split, kernels: Kernels) -> float:
    ranks = split.tensor * split.data
    if split.expert:
        return held(tensor, 1, kernels) * ceil(tensor.experts / ranks) / tensor.experts
    return held(tensor, ranks, kernels)


def _units(tensor: Tensor, ranks: int) -> int:
    """Return the units of the largest share."""
    return ceil(tensor.units / ranks)


def _sequence_parallel(split: Split) -> bool:
    """Return whether tokens are dealt to the ranks of a tensor group before the experts.

    Then each rank holds the shared expert whole (`ParallelConfig.use_sequence_parallel_moe`).
    """
    return split.expert and split.tensor > 1 and split.data > 1


def parameters(
    model: Model, split: Split, engine_version: str | None = None, kernels: Kernels = USUAL
) -> tuple[float, ...]:
    """Return the bytes of parameters of each stage's largest rank, copies made at load included."""
    version = release(engine_version)
    kernels = replace(kernels, version=version)
    dealt = stages(model.layers, split, engine_version)
    last = split.pipeline - 1
    sums: dict[int, float] = {}

    def layer_bytes(layer: Layer) -> float:
        key = id(layer.tensors)
        if key not in sums:
            sums[key] = _allocated(_held(layer, version), split, kernels)
        return sums[key]

    return tuple(
        sum(layer_bytes(model.layers[index]) for index in layers)
        + _ends(model, split, kernels, stage == 0, stage == last)
        + (sum(layer_bytes(one) for one in model.drafts) if stage == last else 0.0)
        for stage, layers in enumerate(dealt)
    )


def _held(layer: Layer, version: Release) -> Iterable[Tensor]:
    """Return a layer's tensors; latent attention came with 0.7.1 and multiplied more until 0.8."""
    if version >= (0, 8, 0) or not layer.absorbed_before_0_8:
        return layer.tensors
    kept = [one for one in layer.tensors if not one.name.endswith(ABSORBED)]
    return kept if version < (0, 7, 1) else [*kept, *layer.absorbed_before_0_8]


def weights(
    model: Model, split: Split, engine_version: str | None = None, kernels: Kernels = USUAL
) -> tuple[int, ...]:
    """Return the bytes that loading takes on each stage's largest rank, tables included.

    This is what the engine prints as "Model loading took". `kernels` says on which device.
    """
    tables = sum(share(one, split) for one in model.buffers)
    return tuple(round(size + tables) for size in parameters(model, split, engine_version, kernels))


def _ends(model: Model, split: Split, kernels: Kernels, first: bool, last: bool) -> float:
    """Return the bytes of what is not in a layer: embedding, norm, head, vision tower."""
    total = 0.0
    for mine, tensors in (
        (first, model.embedding),
        (last, model.head),
        (last, model.own_head if kernels.version >= OWN_HEAD else ()),
        (first, model.others),
    ):
        there = [one for one in tensors if mine or one.role in model.everywhere]
        total += _allocated(there, split, kernels)
    if model.tied and last and not first and "embedding" not in model.everywhere:
        total += _allocated(model.embedding[:1], split, kernels)
    return total
