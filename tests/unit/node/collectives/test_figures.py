"""Figures follow from seconds as nccl-tests computes them, and sizes from what a link carries."""

from __future__ import annotations

import pytest

from vllm_ansible.node.collectives.operations import FACTORS, FIRST_BYTES, figures, fitting_bytes


@pytest.mark.parametrize("operation", FACTORS)
@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_bus_bandwidth_is_that_of_nccl_tests(operation: str, ranks: int) -> None:
    # https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    share = (ranks - 1) / ranks
    whole = {"all_reduce": 2 * share, "broadcast": 1.0}
    assert FACTORS[operation](ranks) == pytest.approx(whole.get(operation, share))


def test_an_operation_is_done_when_its_last_rank_is() -> None:
    answers = [{"seconds": [0.1, 0.2, 0.1], "wrong": 0}, {"seconds": [0.3, 0.1, 0.2], "wrong": 2}]
    found = figures("all_reduce", 10**9, answers)
    assert found["seconds"] == 0.2, "the median of the slower rank of each run"
    assert found["algbw"] == pytest.approx(5.0)
    assert found["busbw"] == pytest.approx(5.0)
    assert found["wrong"] == 2


def test_sizes_are_powers_of_two_within_bounds() -> None:
    assert fitting_bytes(0.0, 0.2, 1 << 30) == FIRST_BYTES
    assert fitting_bytes(1.0, 0.2, 1 << 30) == 1 << 27
    assert fitting_bytes(1000.0, 0.2, 1 << 30) == 1 << 30
