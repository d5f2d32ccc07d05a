"""Which layers each stage holds."""

from __future__ import annotations

import pytest

from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.problem import PlanError


def sizes(layers: int, number: int, version: str | None = None) -> list[int]:
    return [len(one) for one in stages(layers, Split(1, number), version)]


@pytest.mark.parametrize(
    ("layers", "number", "expected"),
    [
        (61, 2, [31, 30]),
        (61, 4, [15, 15, 16, 15]),
        (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]),
        (80, 4, [20, 20, 20, 20]),
        (5, 5, [1, 1, 1, 1, 1]),
    ],
)
def test_what_does_not_divide_goes_to_the_middle(
    layers: int, number: int, expected: list[int]
) -> None:
    assert sizes(layers, number) == expected


def test_up_to_0_7_3_it_went_to_the_last_stage() -> None:
    assert sizes(61, 4, "0.7.3") == [15, 15, 15, 16]
    assert sizes(61, 4, "v0.8.0") == [15, 15, 16, 15]


def test_a_partition_is_taken_as_given() -> None:
    dealt = stages(48, Split(1, 2, layer_partition=(16, 32)))
    assert dealt == (range(16), range(16, 48))


@pytest.mark.parametrize("partition", [(16, 16), (48,), (0, 48), (-1, 49)])
def test_a_partition_that_does_not_fit_is_refused(partition: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match="does not deal 48 layers to 2 stages"):
        stages(48, Split(1, 2, layer_partition=partition))


@pytest.mark.parametrize("value", [0, -1, 2**30, True, 1.5])
@pytest.mark.parametrize("name", ["tensor", "pipeline", "data", "decode_context"])
def test_what_is_no_number_of_ranks_is_refused(name: str, value: int) -> None:
    with pytest.raises(PlanError, match=name):
        Split(**{"tensor": 4, name: value})


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PlanError, match="stages without one of 4 layers"):
        stages(4, Split(1, 5))


def test_context_parallelism_divides_the_tensor_group() -> None:
    with pytest.raises(PlanError, match="does not divide tensor parallelism of 4"):
        Split(4, decode_context=3)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(PlanError, match="'latest' is no version of vLLM"):
        stages(4, Split(1), "latest")
