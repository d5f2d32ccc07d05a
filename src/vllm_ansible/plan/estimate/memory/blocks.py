"""How many tokens of KV cache so many bytes hold: blocks, groups of layers, the smallest stage.

The rules are vLLM 0.32's `kv_cache_utils`: layers of one kind share a table of blocks; where kinds
mix, groups of equally many layers draw on one pool of equal pages, and what the engine prints as
its size in tokens is its highest concurrency times the longest sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model
from vllm_ansible.plan.estimate.memory.group import (
    Group,
    Request,
    count_by_stage,
    in_flight,
)
from vllm_ansible.plan.estimate.memory.kv_cache import layer_bytes_per_token, resolved
from vllm_ansible.plan.estimate.memory.packed import packed
from vllm_ansible.plan.estimate.memory.release import Release, release
from vllm_ansible.plan.estimate.memory.split import Split, stages

# The release in which Mamba-2 and FlashKDA were read to keep a state inside the prompt.
CHECKPOINTS: Release = (0, 32, 0)
# The first that caches prefixes of models with recurrent states unasked (vllm#50991).
STATES_CACHED: Release = (0, 28, 0)
# Keys of a sparse indexer that one page of its kernel holds (DeepGEMM's `PAGED_MQA_PAGE_SIZES`).
PAGE_KEYS = 32
# From here on the engine prints its highest concurrency times the longest sequence.
TOKENS_OF_CONCURRENCY = (0, 20, 1)


@frozen
class Capacity:
    """Blocks of the pool, tokens as the engine counts them, sequences of full length at once."""

    blocks: int
    tokens: int
    concurrency: float


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
    return holding(found, kv_bytes, request, engine_version, split.decode_context)


def holding(
    found: Sequence[Group],
    kv_bytes: Sequence[float],
    request: Request,
    engine_version: str | None = None,
    decode_context: int = 1,
) -> Capacity:
    """Return what the given bytes of each stage hold of these groups.

    decode_context: the ranks among which one sequence's tokens are dealt.
    """
    if not found:
        return Capacity(0, 0, float("inf"))
    blocks = min(
        max(0, int(size // per_block)) if (per_block := _bytes_per_block(found, stage)) else 2**62
        for stage, size in enumerate(kv_bytes)
    )
    concurrency = blocks / sum(group.per_sequence for group in found)
    tokens = int(concurrency * request.max_model_len)
    if release(engine_version) < TOKENS_OF_CONCURRENCY:
        each = min(group.block for group in found) * decode_context
        tokens = blocks // len(found) * each
    return Capacity(blocks, tokens, concurrency)


def bytes_per_sequence(found: Sequence[Group]) -> tuple[float, ...]:
    """Return the bytes that one sequence of full length takes on each stage."""
    needed = sum(group.per_sequence for group in found)
    number = len(found[0].bytes_per_block) if found else 0
    return tuple(needed * _bytes_per_block(found, stage) for stage in range(number))


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
    kv_dtype = resolved(model, kv_dtype, engine_version)
    dealt = stages(model.layers, split, engine_version)
    # Layers that propose tokens cache theirs, too.
    dealt = (*dealt[:-1], range(dealt[-1].start, dealt[-1].stop + len(model.drafts)))
    alike: dict[KvCache, list[int]] = {}
    for layer in (*model.layers, *model.drafts):
        for cache in (layer.kv, layer.kv.beside):
            if cache and cache.kind != "none":
                alike.setdefault(cache, []).append(layer.index)
    sizes = {
        cache: layer_bytes_per_token(cache, split, kv_dtype, engine_version) for cache in alike
    }
    if not alike:
        return ()
    flight = in_flight(request, split.pipeline, release(engine_version))
    if any(cache.pages for cache in alike):
        return packed(model.layers, dealt, request, flight)
    growing = {cache for cache in alike if cache.kind in ("gqa", "mla")}
    if growing and all(cache.entry_bytes for cache in alike if cache not in growing):
        return (_one_group(alike, sizes, dealt, request, split),)
    kept = _states(alike, request, release(engine_version)) + model.proposed
    return _mixed(alike, sizes, dealt, request, split, flight, kept)


def _states(alike: Iterable[KvCache], request: Request, version: Release) -> int:
    """Return the states that a sequence keeps: the current one, and those for prefixes.

    With prefix caching that is the one before it, too, and one inside the prompt where kernels
    export it (`MambaSpec.max_memory_usage_bytes`; mode "align" is set by prefix caching alone).
    """
    kept = request.prefix_caching
    if not (version >= STATES_CACHED if kept is None else kept):
        return 1
    return 2 + (max(one.checkpoints for one in alike) if version >= CHECKPOINTS else 0)


def _one_group(
    alike: Mapping[KvCache, Sequence[int]],
    sizes: Mapping[KvCache, float],
    dealt: Sequence[range],
    request: Request,
    split: Split,
) -> Group:
    """Return the single group of a model that keeps every token.

    What a sequence keeps whatever its length (`state_bytes`) is counted as further blocks.
    """
    pages, fixed = [0.0] * len(dealt), [0] * len(dealt)
    for cache, layers in alike.items():
        for stage, count in enumerate(count_by_stage(layers, dealt)):
            page = sizes[cache] * split.decode_context * request.block_size
            pages[stage] += 0 if cache.kind == "sliding" else count * page
            fixed[stage] += count * cache.state_bytes
    per_sequence = ceil(request.max_model_len / (request.block_size * split.decode_context))
    further = ceil(max(fixed) / max(pages))
    return Group(tuple(pages), per_sequence + further, request.block_size)


def _mixed(
    alike: Mapping[KvCache, Sequence[int]],
    sizes: Mapping[KvCache, float],
    dealt: Sequence[range],
    request: Request,
    split: Split,
    flight: int,
    kept: int,
) -> tuple[Group, ...]:
    """Return groups of equally many layers and equal pages, padded where they do not divide.

    kept: states of a sequence; one more for each token that is proposed (`MambaSpec`). Keys of
    pools lie beside the pages, and a sequence's newest tokens, which fill no pool yet, have a block
    of their own (`KpoolTailSpec`).
    """
    states = max(
        (one.state_bytes / min(split.tensor, one.heads) for one in alike if one.kind == "linear"),
        default=0.0,
    )
    pooled = {
        cache: cache.extra_bytes_per_token / split.decode_context * (cache.pool > 1)
        for cache in alike
    }
    sizes = {cache: size - pooled[cache] for cache, size in sizes.items()}
    pool = max(cache.pool for cache in alike)
    unit = max(request.block_size, PAGE_KEYS * pool * (pool > 1))
    largest = max(size * (cache.block or unit) for cache, size in sizes.items())
    times = max(1, ceil(states / largest)) if largest else 1
    page = max(largest * times, states)
    counts = [len(layers) for layers in alike.values()]
    each = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    made = []
    for cache, layers in alike.items():
        number = ceil(len(layers) / each)
        block = int(largest * times // sizes[cache]) if sizes[cache] else unit * times
        linear = cache.kind == "linear"
        needed = kept if linear else _needed(cache, block, request, split, flight)
        needed += cache.pool > 1
        for index in range(number):
            whole = page + pooled[cache] * block
            held = tuple(count * whole for count in count_by_stage(layers[index::number], dealt))
            made.append(Group(held, needed, block))
    return tuple(made)


def _needed(cache: KvCache, block: int, request: Request, split: Split, flight: int) -> int:
    """Return the blocks of one sequence of full length."""
    if cache.kind == "sliding" and cache.window is not None:
        return ceil(min(cache.window - 1 + flight, request.max_model_len) / block) + 1
    return ceil(request.max_model_len / (block * split.decode_context))
