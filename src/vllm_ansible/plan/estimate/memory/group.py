"""Groups of layers that share a table of blocks, and what decides a sequence's part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.memory.release import Release

# From here on what a window has left behind is freed once its step is over, so that every batch
# under way keeps its tokens (vllm#47728, that is 0.26.0); before, only the next batch did.
SETTLED_SINCE: Release = (0, 26, 0)


@frozen
class Group:
    """Layers that share a table of blocks.

    `bytes_per_block` is what one block takes on a rank of each stage, `per_sequence` the blocks of
    one sequence of full length, `block` the tokens of a block.
    """

    bytes_per_block: tuple[float, ...]
    per_sequence: int
    block: int


@frozen
class Request:
    """What decides how much of the cache one sequence takes.

    `prefix_caching` of None is what the release does with recurrent states unless told.
    """

    max_model_len: int
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    prefix_caching: bool | None = None


def in_flight(request: Request, stages: int, version: Release) -> int:
    """Return the tokens that are under way: of two batches, or of one for each stage."""
    batches = max(2, stages) if version >= SETTLED_SINCE else 1
    return batches * request.max_num_batched_tokens


def count_by_stage(layers: Sequence[int], dealt: Sequence[range]) -> tuple[int, ...]:
    """Return how many of these layers each stage holds."""
    mine = Counter(
        stage for layer in layers for stage, of_stage in enumerate(dealt) if layer in of_stage
    )
    return tuple(mine[stage] for stage in range(len(dealt)))
