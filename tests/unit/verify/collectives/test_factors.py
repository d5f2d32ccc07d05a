"""Factors of bus bandwidth, and what has none."""

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.verify.collectives.factors import bandwidth, factor


@pytest.mark.parametrize(
    ("operation", "ranks", "expected"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 2, 0.5),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("send_recv", 2, 1.0),
    ],
)
def test_factors_are_those_of_nccl_tests(operation, ranks, expected):
    assert factor(operation, ranks) == pytest.approx(expected)


def test_a_gigabyte_is_ten_to_the_ninth():
    found = bandwidth("all_reduce", 2**30, 0.0045605, 4)
    assert found.algbw == pytest.approx(235.44, abs=0.01)
    assert found.busbw == pytest.approx(353.16, abs=0.01)


@pytest.mark.parametrize(
    ("operation", "size", "seconds", "ranks", "word"),
    [
        ("allreduce", 1, 1, 2, "all_reduce"),
        ("all_reduce", 1, 1, 1, "2 ranks"),
        ("all_reduce", 1, 0, 2, "repeats"),
    ],
)
def test_what_has_no_bandwidth_is_refused(operation, size, seconds, ranks, word):
    with pytest.raises(PlanError) as error:
        bandwidth(operation, size, seconds, ranks)
    problem = error.value.problems[0]
    assert word in problem.expected + problem.fix
    assert problem.found
