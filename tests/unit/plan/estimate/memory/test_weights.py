"""What each rank holds, rule by rule; the figures of R1 are in facts/memory.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_ansible.plan.estimate.architectures.model import Model, Tensor
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.memory.kernels import Kernels
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import parameters, share, weights

from .deployments import model as model_of

Make = Callable[..., Model]
CONFIGS = Path(__file__).parents[4] / "data/public/configs"
R1 = CONFIGS / "deepseek-ai--DeepSeek-R1_config.json"
GIB = 2**30


def configuration(name: str) -> Model:
    return load(str(CONFIGS / f"{name}_config.json"))


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


MARLIN, HOPPER = Kernels(), Kernels(capability=9.0)


def test_marlin_pads_a_ranks_share_and_the_hidden_size() -> None:
    experts = Tensor("w13", 2880, 2880.0, "experts", "experts", 2880, 4, "mxfp4", 2880)
    assert share(experts, Split(1), MARLIN) == pytest.approx(2944 * 3072 / 2880)
    assert share(experts, Split(8), MARLIN) == pytest.approx(384 * 3072 / 2880)
    assert share(experts, Split(8), Kernels("rocm")) == pytest.approx(512 * 3072 / 2880)


@pytest.mark.parametrize(
    ("version", "kernels", "printed"),
    [
        ("0.14.1", HOPPER, 64.38),  # vllm-project/vllm#33155, "Using Triton backend"
        ("0.14.1", MARLIN, 65.9651),  # vllm-project/vllm#23278, Marlin
        ("0.10.1", HOPPER, 65.9651),  # Triton's kernels did not come with it
    ],
)
def test_gpt_oss_is_held_as_the_kernels_of_the_device_need(
    version: str, kernels: Kernels, printed: float
) -> None:
    found = weights(configuration("openai--gpt-oss-120b"), Split(1), version, kernels)[0] / GIB
    assert found == pytest.approx(printed, rel=0.001)


def test_blocks_of_20_mib_are_not_split_while_newer_engines_load() -> None:
    """Qwen2.5-1.5B, of 52.5 and 26.25 MiB a layer: 0.8.5 prints 2.8871 GiB, 0.28 prints 2.98."""
    found = model_of("Qwen/Qwen2.5-1.5B-Instruct")
    assert found is not None
    before, after = (
        weights(found, Split(1), version, Kernels("cuda", 8.9))[0]
        for version in ("0.20.2", "0.21.0")
    )
    assert after - before == 28 * ((54 - 52.5) + (28 - 26.25)) * 2**20
    assert after / GIB == pytest.approx(2.98, rel=0.003)
    # No such allocator holds the weights of a CPU.
    cpu = [weights(found, Split(1), version, Kernels("cpu"))[0] for version in ("0.20.2", "0.21.0")]
    assert cpu[0] == cpu[1]


def test_triton_keeps_one_copy_of_the_scales_since_0_25() -> None:
    model = configuration("openai--gpt-oss-120b")
    before, after = (weights(model, Split(1), one, HOPPER)[0] for one in ("0.24.0", "0.25.0"))
    # What was 128 and 66 MiB of a layer became 68 and 36, in blocks of 2 MiB that are not split.
    assert before - after == 36 * (128 + 66 - 68 - 36) * 2**20


@pytest.mark.parametrize(
    ("tensor", "kernels", "version", "padded"),
    [
        (2, HOPPER, None, 1408),
        (4, HOPPER, None, 768),
        (1, HOPPER, None, 2688),
        (4, Kernels(capability=8.9), None, 672),
        (4, HOPPER, "0.14.1", 672),
    ],
)
def test_ungated_fp8_experts_are_padded_to_128_a_rank(
    tensor: int, kernels: Kernels, version: str | None, padded: int
) -> None:
    """FlashInfer's kernels need it: 2,688 over two ranks is 1,344 of Nemotron's, held as 1,408."""
    model = configuration("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    whole, given = (
        weights(model, Split(tensor), version, one)[0] for one in (Kernels("cuda", 8.0), kernels)
    )
    experts = 40 * 512 * 2 * 1024
    assert given - whole == pytest.approx(experts * (padded - 2688 // tensor), rel=0.001)


def test_positions_of_images_have_a_table_four_times_as_long(make: Make) -> None:
    plain = weights(make("llama"), Split(1))[0]
    rope = {"rope_parameters": {"rope_type": "default", "mrope_section": [8, 4, 4]}}
    assert weights(make("llama", **rope), Split(1))[0] - plain == 3 * 4096 * 32 * 2


def test_qwen3_vl_keeps_layers_of_its_tower_for_a_step() -> None:
    model = configuration("Qwen--Qwen3-VL-30B-A3B-Instruct")
    sizes = {one.name: one.bytes for one in model.buffers}
    assert sizes["deepstack_input_embeds"] == 3 * 8192 * 2048 * 2
    assert sizes["rotary_0"] == 4 * 262144 * 128 * 2


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
