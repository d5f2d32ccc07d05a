"""Blocks of models whose layers have several caches with pages of many sizes: DeepSeek-V4, V4.1.

The rules are vLLM 0.32's `_get_packed_kv_cache_groups`: caches of one kind form a bucket, a bucket
is dealt to groups so that all hold about as many layers, and a block is as large as the largest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil

from vllm_ansible.plan.estimate.architectures.model import Layer, Page
from vllm_ansible.plan.estimate.memory.group import Group, Request

# The pages of a bucket, each with the layer that has it.
Bucket = list[tuple[int, Page]]


def packed(
    layers: Sequence[Layer], dealt: Sequence[range], request: Request, flight: int
) -> tuple[Group, ...]:
    """Return the groups of a model whose layers list their pages, `dealt` to stages.

    flight: the tokens that are under way.
    """
    buckets: dict[tuple[int, int | None], Bucket] = defaultdict(list)
    for layer in layers:
        for page in layer.kv.pages:
            buckets[page.tokens, page.window].append((layer.index, page))
    repeats = _repeats([_counts(bucket) for bucket in buckets.values()])
    widest = 0 if repeats else max(_least(bucket) for bucket in buckets.values())
    return tuple(
        _group(part, dealt, request, flight)
        for bucket in buckets.values()
        for part in _split(bucket, repeats, widest)
    )


def _least(bucket: Bucket) -> int:
    """Return the bytes of a block of a bucket: windows and rings may have one layer in a group."""
    pages = [page for _, page in bucket]
    return sum({one.bytes for one in pages} if _kept(bucket) else [one.bytes for one in pages])


def _kept(bucket: Bucket) -> bool:
    """Tell whether a bucket keeps no more than a window of a sequence."""
    return bucket[0][1].window is not None


def _counts(bucket: Bucket) -> tuple[int, ...]:
    """Return how many pages of each size there are."""
    return tuple(Counter(page.bytes for _, page in bucket).values())


def _repeats(counts: Sequence[tuple[int, ...]]) -> int:
    """Return how many layers a group is to have: what pads the fewest, 0 where nothing is split.

    Buckets with as many pages of each of several sizes stay whole, and set the least.
    """
    balanced = [max(one) for one in counts if len(set(one)) == 1]
    least = max((max(one) for one in counts if len(set(one)) == 1 and len(one) > 1), default=0)
    if not least:
        return 0
    padding = {
        size: sum(-one % size for one in balanced) for size in range(least, max(balanced) + 1)
    }
    return min(padding, key=lambda size: (padding[size], -size))


def _split(bucket: Bucket, repeats: int, widest: int) -> list[Bucket]:
    """Return the pages of each group of a bucket; windows fill the block that all others need."""
    counts = _counts(bucket)
    if widest and _kept(bucket):
        number = ceil(len(bucket) / max(1, widest // bucket[0][1].bytes))
        return [bucket[index::number] for index in range(number)]
    if not repeats or len(set(counts)) > 1:
        return [bucket]
    number = ceil(max(counts) / repeats)
    by_size: dict[int, Bucket] = defaultdict(list)
    for place in bucket:
        by_size[place[1].bytes].append(place)
    return [
        [place for places in by_size.values() for place in places[index::number]]
        for index in range(number)
    ]


def _group(part: Bucket, dealt: Sequence[range], request: Request, flight: int) -> Group:
    page = part[0][1]
    held = tuple(
        float(sum(one.bytes for layer, one in part if layer in of_stage)) for of_stage in dealt
    )
    kept, further = request.max_model_len, 0
    if page.window == 0:
        return Group(held, 1, page.tokens)
    if page.window is not None:
        kept, further = min(page.window - 1 + flight, request.max_model_len), 1
    return Group(held, ceil(kept / page.tokens) + further, page.tokens)
