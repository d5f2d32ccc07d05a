"""Parts that stand for all of a model's files."""

from __future__ import annotations

from vllm_ansible.node.weights.loading.places import CHUNK, spread


def test_parts_are_spread_evenly_over_all_files() -> None:
    parts = spread([4 * CHUNK] * 8, 8 * CHUNK)
    assert parts == [(number, 0, CHUNK) for number in range(8)]


def test_never_more_than_there_is_and_never_less_than_one_part() -> None:
    assert spread([10, CHUNK + 1], 1 << 40) == [(0, 0, 10), (1, 0, CHUNK), (1, CHUNK, 1)]
    assert len(spread([9 * CHUNK], 1)) == 1
    assert spread([], 1 << 30) == [] == spread([0], 1 << 30)
