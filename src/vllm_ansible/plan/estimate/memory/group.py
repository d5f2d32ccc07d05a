"""Groups of layers that share a table of blocks, and what decides a sequence's part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vllm_ansible.frozen import frozen

BATCHES_IN_FLIGHT = 2


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
    """What decides how much of the cache one sequence takes."""

    max_model_len: int
    max_num_batched_tokens: int = 8192
    block_size: int = 16


def count_by_stage(layers: Sequence[int], dealt: Sequence[range]) -> tuple[int, ...]:
    """Return how many of these layers each stage holds."""
    mine = Counter(
        stage for layer in layers for stage, of_stage in enumerate(dealt) if layer in of_stage
    )
    return tuple(mine[stage] for stage in range(len(dealt)))
