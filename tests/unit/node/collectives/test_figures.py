"""Figures follow from seconds as nccl-tests computes them, and sizes from what a link carries."""

from __future__ import annotations

import pytest

from vllm_ansible.node.collectives.operations import FACTORS, FIRST_BYTES, figures, fitting_bytes
from vllm_ansible.verify.collectives.factors import factor


@pytest.mark.parametrize("operation", FACTORS)
@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_hosts_and_controller_have_one_bus_bandwidth(operation: str, ranks: int) -> None:
    assert FACTORS[operation](ranks) == pytest.approx(factor(operation, ranks))


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
