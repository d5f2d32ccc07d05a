"""How many tokens of KV cache so many bytes hold: blocks, groups of layers, the smallest stage.

The rules are vLLM 0.32's `kv_cache_utils`: layers of one kind share a table of blocks; where kinds
mix, groups of equally many layers draw on one pool of equal pages, and what the engine prints as
its size in tokens is its highest concurrency times the longest sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from vllm_ansible.memory.kv_cache import layer_bytes_per_token
from vllm_ansible.memory.release import release
from vllm_ansible.memory.split import Split, stages
from vllm_ansible.models.model import KvCache, Model

# A state kept for prefix caching holds the current one and the one before it.
STATES_PER_SEQUENCE = 2
BATCHES_IN_FLIGHT = 2


@dataclass(frozen=True)
class Capacity:
    """Blocks of the pool, tokens as the engine counts them, sequences of full length at once."""

    blocks: int
    tokens: int
    concurrency: float


@dataclass(frozen=True)
class Group:
    """Layers that share a table of blocks.

    `bytes_per_block` is what one block takes on a rank of each stage, `per_sequence` the blocks of
    one sequence of full length, `block` the tokens of a block.
    """

    bytes_per_block: tuple[float, ...]
    per_sequence: int
    block: int


@dataclass(frozen=True)
class Request:
    """What decides how much of the cache one sequence takes."""

    max_model_len: int
    max_num_batched_tokens: int = 8192
    block_size: int = 16


def capacity(
    model: Model,
    split: Split,
    kv_bytes: Sequence[float],
    request: Request,
    kv_dtype: str = "auto",
    engine_version: str | None = None,
) -> Capacity:
    """Return what the given bytes of each stage hold; the stage with the fewest blocks decides."""
    found = groups(model, split, request, kv_dtype, engine_version)
    if not found:
        return Capacity(0, 0, float("inf"))
    blocks = min(
        max(0, int(size // per_block)) if (per_block := _bytes_per_block(found, stage)) else 2**62
        for stage, size in enumerate(kv_bytes)
    )
    concurrency = blocks / sum(group.per_sequence for group in found)
    tokens = int(concurrency * request.max_model_len)
    if release(engine_version) < (0, 20, 0):
        tokens = blocks // len(found) * min(group.block for group in found)
    return Capacity(blocks, tokens, concurrency)


def bytes_per_sequence(
    model: Model,
    split: Split,
    request: Request,
    kv_dtype: str = "auto",
    engine_version: str | None = None,
) -> tuple[float, ...]:
    """Return the bytes that one sequence of full length takes on each stage."""
    found = groups(model, split, request, kv_dtype, engine_version)
    needed = sum(group.per_sequence for group in found)
    return tuple(needed * _bytes_per_block(found, stage) for stage in range(split.pipeline))


def _bytes_per_block(found: Sequence[Group], stage: int) -> float:
    return max((group.bytes_per_block[stage] for group in found), default=0.0)


def groups(
    model: Model,
    split: Split,
    request: Request,
    kv_dtype: str = "auto",
    engine_version: str | None = None,
) -> tuple[Group, ...]:
    """Return the groups into which the engine sorts a model's layers."""
    dealt = stages(model.layers, split, engine_version)
    kinds: dict[tuple[str, int | None, float, float], list[int]] = {}
    for layer in model.layers:
        if layer.kv.kind == "none":
            continue
        size = layer_bytes_per_token(layer.kv, split, kv_dtype, engine_version)
        window = layer.kv.window if layer.kv.kind == "sliding" else None
        state = layer.kv.state_bytes / _parts(layer.kv, split) if layer.kv.state_bytes else 0.0
        kept = state if layer.kv.kind == "linear" else 0.0
        kinds.setdefault((layer.kv.kind, window, size, kept), []).append(layer.index)
    if not kinds:
        return ()
    if all(kind in ("gqa", "mla") for kind, *_ in kinds):
        return (_one_group(model, split, dealt, request, kv_dtype, engine_version),)
    return _mixed(kinds, dealt, request, split)


def _parts(cache: KvCache, split: Split) -> int:
    return min(split.tensor, cache.heads) if cache.kind == "linear" else 1


def _one_group(
    model: Model,
    split: Split,
    dealt: Sequence[range],
    request: Request,
    kv_dtype: str,
    engine_version: str | None,
) -> Group:
    """Return the single group of a model that keeps every token.

    What a sequence keeps whatever its length (`state_bytes`) is counted as further blocks.
    """
    block = request.block_size
    pages, fixed = [], 0
    for layers in dealt:
        caches = [model.layers[index].kv for index in layers]
        sizes = (layer_bytes_per_token(one, split, kv_dtype, engine_version) for one in caches)
        pages.append(sum(sizes) * split.decode_context * block)
        fixed = max(fixed, sum(one.state_bytes for one in caches))
    per_sequence = ceil(request.max_model_len / (block * split.decode_context))
    return Group(tuple(pages), per_sequence + ceil(fixed / max(pages)), block)


def _mixed(
    kinds: dict[tuple[str, int | None, float, float], list[int]],
    dealt: Sequence[range],
    request: Request,
    split: Split,
) -> tuple[Group, ...]:
    """Return groups of equally many layers and equal pages, padded where they do not divide."""
    largest = max((size for _, _, size, _ in kinds), default=0.0)
    states = max((state for *_, state in kinds), default=0.0)
    unit = request.block_size
    tokens = unit
    if states and largest:
        tokens = max(unit, ceil(states / largest / unit) * unit)
    page = max(largest * tokens, states)
    counts = [len(layers) for layers in kinds.values()]
    each = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    made = []
    for (kind, window, size, _), layers in kinds.items():
        number = ceil(len(layers) / each)
        block = int(tokens * largest // size) if size else tokens
        needed = _needed(kind, window, block, request, split)
        for index in range(number):
            mine = Counter(
                stage
                for layer in layers[index::number]
                for stage, of_stage in enumerate(dealt)
                if layer in of_stage
            )
            held = tuple(mine[stage] * page for stage in range(len(dealt)))
            made.append(Group(held, needed, block))
    return tuple(made)


def _needed(kind: str, window: int | None, block: int, request: Request, split: Split) -> int:
    """Return the blocks of one sequence of full length."""
    if kind == "linear":
        return STATES_PER_SEQUENCE
    if kind == "sliding" and window is not None:
        flight = BATCHES_IN_FLIGHT * request.max_num_batched_tokens
        return ceil(min(window - 1 + flight, request.max_model_len) / block) + 1
    return ceil(request.max_model_len / (block * split.decode_context))
