"""What each rank holds, rule by rule; the figures of R1 are in facts/memory.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_ansible.memory.split import Split
from vllm_ansible.memory.weights import parameters, share, weights
from vllm_ansible.models.model import Model, Tensor
from vllm_ansible.models.source import load

Make = Callable[..., Model]
R1 = Path(__file__).parents[2] / "data/public/configs/deepseek-ai--DeepSeek-R1_config.json"
GIB = 2**30


def layer_bytes(model: Model, split: Split, role: str, layer: int = 5) -> float:
    return sum(share(one, split) for one in model.layers[layer].tensors if one.role == role)


def test_kv_heads_are_replicated_once_there_are_more_ranks() -> None:
    keys = Tensor("k_proj", 1024, 2048, "kv", "attention", units=4)
    held = [share(keys, Split(tensor)) for tensor in (1, 2, 4, 8, 16)]
    assert held == [2048, 1024, 512, 512, 512]


def test_experts_are_split_without_and_kept_whole_with_expert_parallelism(make: Make) -> None:
    model = make("mixture")
    whole = layer_bytes(model, Split(1), "experts")
    assert layer_bytes(model, Split(4), "experts") == whole / 4
    assert layer_bytes(model, Split(4, data=2), "experts") == whole / 8
    assert layer_bytes(model, Split(4, data=2, expert=True), "experts") == whole / 8
    # Eight experts over three ranks: the first two hold three.
    assert layer_bytes(model, Split(3, expert=True), "experts") == pytest.approx(whole * 3 / 8)


def test_data_parallelism_replicates_attention(make: Make) -> None:
    model = make("mixture")
    assert layer_bytes(model, Split(4, data=2), "attention") == layer_bytes(
        model, Split(4), "attention"
    )


def test_a_shared_expert_is_whole_where_tokens_are_dealt_to_ranks(make: Make) -> None:
    model = make("latent")
    whole = layer_bytes(model, Split(1), "shared_expert")
    assert layer_bytes(model, Split(4), "shared_expert") == whole / 4
    assert layer_bytes(model, Split(4, expert=True), "shared_expert") == whole / 4
    assert layer_bytes(model, Split(4, data=2, expert=True), "shared_expert") == whole


def test_padded_kernels_round_each_share_up() -> None:
    experts = Tensor("w13", 2880, 2880.0, "experts", "experts", 2880, 128, 4)
    assert share(experts, Split(1)) == 2944
    assert share(experts, Split(8)) == 384


def test_the_ends_are_on_the_first_and_the_last_stage(make: Make) -> None:
    model = make("llama")
    first, middle, last = parameters(model, Split(1, 3))
    table = model.embedding[0].bytes
    assert first - middle == table == 1024 * 256 * 2
    assert last - middle == table + 256 * 2


def test_a_tied_embedding_is_on_both_ends(make: Make) -> None:
    first, middle, last = parameters(make("tied"), Split(1, 3))
    assert last - middle == first - middle + 256 * 2


def test_classes_that_build_the_ends_on_every_stage_have_them_there(make: Make) -> None:
    first, middle, last = parameters(make("mixture"), Split(1, 3))
    assert first == middle == last


def test_tables_are_loaded_on_every_stage_but_are_no_parameters(make: Make) -> None:
    model, split = make("llama"), Split(1, 3)
    tables = 4096 * 32 * 2
    sizes = zip(weights(model, split), parameters(model, split), strict=True)
    assert [loaded - counted for loaded, counted in sizes] == [tables] * 3


@pytest.mark.parametrize(
    ("split", "version", "expected"),
    [
        (Split(8), None, [79.53]),
        (Split(16), None, [40.30]),
        (Split(8, 2), None, [38.53, 41.00]),
        (Split(8), "0.7.2", [83.88]),
    ],
)
def test_r1_has_the_weights_that_logs_print(
    split: Split, version: str | None, expected: list[float]
) -> None:
    found = [size / GIB for size in weights(load(str(R1)), split, version)]
    assert found == pytest.approx(expected, rel=0.006)
