"""Models of every family, against the parameters that their authors count."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import load

CONFIGS = Path(__file__).parents[4] / "data" / "public" / "configs"
NAMES = sorted(
    path.name.removesuffix("_config.json")
    for path in CONFIGS.glob("*_config.json")
    if not path.name.endswith("_hf_quant_config.json")
)
NO_PARAMETERS = (".scales", ".zeros", "kv_b_absorbed")


# What the safetensors of each repository hold, without scales and layers for speculation.
PUBLISHED = {
    "meta-llama--Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama--Meta-Llama-3.1-70B": 70_553_706_496,
    "meta-llama--Meta-Llama-3.1-405B": 405_853_388_800,
    "mistralai--Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai--Mixtral-8x22B-v0.1": 140_620_634_112,
    "Qwen--Qwen3-0.6B": 596_049_920,
    "Qwen--Qwen3-1.7B": 1_720_574_976,
    "Qwen--Qwen3-8B": 8_190_735_360,
    "Qwen--Qwen3-32B": 32_762_123_264,
    "Qwen--Qwen3-30B-A3B": 30_532_122_624,
    "Qwen--Qwen3-235B-A22B": 235_093_634_560,
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "Qwen--Qwen3-VL-30B-A3B-Instruct": 31_070_754_032,
}

# Billions of parameters as the names and cards round them.
ROUNDED = {
    "deepseek-ai--DeepSeek-R1": (671.0, 0.001),
    "moonshotai--Kimi-K2-Instruct": (1026.4, 0.001),
    "zai-org--GLM-5": (744.0, 0.002),
    "MiniMaxAI--MiniMax-M2.5": (228.7, 0.001),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.7, 0.002),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (108.6, 0.002),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": (401.6, 0.002),
    "Qwen--Qwen3.5-35B-A3B": (35.1, 0.01),
    "Qwen--Qwen3.5-397B-A17B": (397.0, 0.01),
    "deepseek-ai--DeepSeek-V4-Pro": (1573.0, 0.02),
}


def configuration(name: str) -> Model:
    return load(str(CONFIGS / f"{name}_config.json"))


def parameters(model: Model) -> int:
    return sum(one.elements for one in model.tensors() if not one.name.endswith(NO_PARAMETERS))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    assert parameters(configuration(name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_are_about_those_of_the_card(name: str) -> None:
    billions, apart = ROUNDED[name]
    assert parameters(configuration(name)) / 1e9 == pytest.approx(billions, rel=apart)


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_understood(name: str) -> None:
    model = configuration(name)
    assert len(model.layers) > 10
    assert all(layer.tensors for layer in model.layers)
    assert all(one.bytes > 0 and one.units > 0 for one in model.tensors())


def test_the_tensors_of_r1_sum_to_its_files() -> None:
    model = configuration("deepseek-ai--DeepSeek-R1")
    made = sum(one.bytes for one in model.tensors() if one.name.endswith("kv_b_absorbed"))
    # All tensors less the layer for speculation.
    published = 688_574_832_416 - 15_424_227_440
    assert model.bytes() - made == pytest.approx(published, rel=1e-7)
    assert [layer.experts for layer in model.layers[:4]] == [0, 0, 0, 256]


def test_quantized_files_have_the_size_of_their_repository() -> None:
    # GB of the safetensors in the repositories, as their pages sum them.
    assert configuration("moonshotai--Kimi-K2.5").bytes() / 1e9 == pytest.approx(595, rel=0.005)
    assert configuration("Qwen--Qwen3-32B-FP8").bytes() / 1e9 == pytest.approx(34.3, rel=0.01)


def test_a_sparse_model_indexes_only_the_layers_that_choose() -> None:
    model = configuration("zai-org--GLM-5.3-FP8")
    indexed = [layer.index for layer in model.layers if layer.kv.extra_bytes_per_token]
    assert indexed[:5] == [0, 1, 2, 6, 10]
    assert all(layer.kv.extra_bytes_per_token for layer in configuration("zai-org--GLM-5").layers)


def test_a_hybrid_keeps_keys_in_every_fourth_layer_and_a_state_in_the_others() -> None:
    model = configuration("Qwen--Qwen3.5-35B-A3B")
    kinds = [layer.kv.kind for layer in model.layers]
    assert kinds == ["linear", "linear", "linear", "gqa"] * 10
    # 3 x 8192 in 16 bits, and 32 heads of 128 x 128 in 32.
    assert model.layers[0].kv.state_bytes == 3 * 8192 * 2 + 32 * 128 * 128 * 4


def test_windows_are_where_the_configuration_has_them() -> None:
    model = configuration("openai--gpt-oss-20b")
    assert [layer.kv.window for layer in model.layers[:4]] == [128, None, 128, None]
    gemma = configuration("google--gemma-4-26B-A4B")
    assert {(layer.kv.heads, layer.kv.head_size) for layer in gemma.layers} == {(8, 256), (2, 512)}
