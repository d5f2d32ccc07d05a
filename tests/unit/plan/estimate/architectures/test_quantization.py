"""Each way to store weights, by what the engine holds for one matrix."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.problem import PlanError

WIDE = {"hidden_size": 256, "intermediate_size": 512}
# The first layer's down projection: 512 inputs, 256 outputs.
WEIGHTS = 512 * 256


def group(bits: int, kind: str, strategy: str, size: int = 0, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": size, **more}
    return {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"weights": weights}},
    }


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "fp8 per tensor": ({"quant_method": "fp8"}, WEIGHTS + 2 * 4),
    "fp8 in blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        WEIGHTS + 4 * 2 * 4,
    ),
    "fp8 per channel": ({"quant_method": "fbgemm_fp8"}, WEIGHTS + 256 * 4),
    "compressed fp8 per channel": (group(8, "float", "channel"), WEIGHTS + 256 * 4),
    "compressed int8 per channel": (group(8, "int", "channel"), WEIGHTS + 256 * 4),
    "compressed int4": (group(4, "int", "group", 128), WEIGHTS / 2 + 256 * 4 * 2),
    "compressed int4 with zeros": (
        group(4, "int", "group", 128, symmetric=False),
        WEIGHTS / 2 + 256 * 4 * 2.5,
    ),
    "compressed nvfp4": (group(4, "float", "tensor_group", 16), WEIGHTS / 2 + WEIGHTS / 16),
    "compressed blocks": (
        group(8, "float", "block", block_structure=[128, 128]),
        WEIGHTS + 4 * 2 * 4,
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128}, WEIGHTS / 2 + 1024 * 2.5),
    "gptq": ({"quant_method": "gptq", "bits": 8, "group_size": 128}, WEIGHTS + 1024 * 3),
    "modelopt fp8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, WEIGHTS + 8),
    "modelopt nvfp4": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        WEIGHTS / 2 + WEIGHTS / 16,
    ),
    "modelopt nested": (
        {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}},
        WEIGHTS + 8,
    ),
}


def held(model: Model, layer: int, name: str) -> float:
    tensors = model.layers[layer].tensors
    return sum(one.bytes for one in tensors if one.name.startswith(name))


@pytest.mark.parametrize("name", CASES)
def test_a_matrix_has_its_weights_and_scales(name: str, make: Any) -> None:
    quantization, expected = CASES[name]
    model = make(**WIDE, quantization_config=quantization)
    assert held(model, 0, "mlp.down_proj") == expected


@pytest.mark.parametrize(
    "left_out",
    [
        "model.layers.1.mlp.down_proj",
        "model.layers.1.mlp",
        "model.language_model.layers.1.mlp.down_proj",
        "model.layers.1.*",
        "re:.*layers\\.1\\..*",
    ],
)
def test_a_module_that_is_left_out_keeps_its_precision(left_out: str, make: Any) -> None:
    quantization = {"quant_method": "fp8", "modules_to_not_convert": [left_out]}
    model = make(**WIDE, quantization_config=quantization)
    assert held(model, 1, "mlp.down_proj") == 2 * WEIGHTS
    assert held(model, 0, "mlp.down_proj") == WEIGHTS + 8


def test_what_modelopt_writes_beside_the_configuration_is_read(make: Any) -> None:
    beside = Settings({"quantization": {"quant_algo": "FP8", "exclude_modules": []}}, "hf_quant")
    model = understand(make.config(**WIDE), "small", beside)
    assert model.quantization == "fp8 per tensor"
    assert held(model, 0, "mlp.down_proj") == WEIGHTS + 8


def test_mixed_precision_is_read_module_by_module(make: Any) -> None:
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}},
    }
    model = make(**WIDE, quantization_config=quantization)
    assert held(model, 0, "mlp.down_proj") == WEIGHTS + 8
    assert held(model, 1, "mlp.down_proj") == 2 * WEIGHTS


def test_norms_embedding_and_head_are_never_quantized(make: Any) -> None:
    model = make(**WIDE, quantization_config={"quant_method": "fp8"})
    assert [one.bytes / one.elements for one in model.head + model.embedding] == [2, 2, 2]


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({"quant_method": "wizardry"}, "wizardry"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "FP3"),
        ({"quant_method": "awq"}, "bits"),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, "weight_block_size"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "fp8", "ignored_layers": ["re:("]}, "re:("),
        ({"quant_method": "compressed-tensors", "config_groups": [1]}, "config_groups"),
        ([4], "quantization_config"),
    ],
)
def test_a_quantization_that_is_not_known_is_refused(
    quantization: Any, named: str, make: Any
) -> None:
    with pytest.raises(PlanError, match=named.replace("(", "\\(")) as refused:
        make(quantization_config=quantization)
    assert len(refused.value.problems) == 1


def listed(layers: dict[str, str]) -> dict[str, Any]:
    algorithms = {name: {"quant_algo": algorithm} for name, algorithm in layers.items()}
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": algorithms,
    }


def test_experts_that_are_listed_one_by_one_are_stored_as_listed() -> None:
    """MiniMax-M3 in NVFP4 was planned with 786 GiB in place of 233, its experts in 16 bits."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 256,
        "moe_intermediate_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 128,
        "max_position_embeddings": 256,
        "quantization_config": listed(
            {
                f"model.layers.0.mlp.experts.{expert}.{part}": "NVFP4"
                for expert in range(4)
                for part in ("gate_proj", "up_proj", "down_proj")
            }
        ),
    }
    model = understand(Settings(config, "config.json"), "small")
    (size,) = [one.bytes for one in model.layers[0].tensors if one.name == "mlp.experts.w13.weight"]
    assert size == 4 * 2 * 256 * 128 / 2


def test_what_the_engine_joins_is_stored_as_its_parts_are() -> None:
    """Qwen3.5's index and lists name two parts of one matrix, which was planned in 16 bits."""
    config = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 1,
        "layer_types": ["linear_attention"],
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 128,
        "max_position_embeddings": 256,
    }
    lists = listed(
        {f"model.layers.0.linear_attn.{part}": "FP8" for part in ("in_proj_qkv", "in_proj_z")}
    )
    names = frozenset(
        f"model.layers.0.linear_attn.{part}.{end}"
        for part in ("in_proj_qkv", "in_proj_z")
        for end in ("weight", "weight_scale_inv")
    )
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    for quantization, checkpoint in ((lists, None), (blocks, Checkpoint(names, {}, 0))):
        values = {**config, "quantization_config": quantization}
        model = understand(Settings(values, "config.json"), "small", checkpoint=checkpoint)
        sizes = {one.name: one.bytes for one in model.layers[0].tensors}
        assert sizes["linear_attn.in_proj_qkvz.weight"] == 256 * (2 * 64 + 2 * 128)


def test_a_head_that_is_listed_is_stored_as_listed(make: Any) -> None:
    quantization = listed({"lm_head": "NVFP4", "model.layers.0.mlp.down_proj": "FP8"})
    model = make(quantization_config=quantization, **WIDE)
    (size,) = [one.bytes for one in model.head if one.name == "lm_head.weight"]
    assert size == 128 * 256 / 2


def test_an_export_of_modelopt_without_a_method_is_read(make: Any) -> None:
    quantization = {"quant_algo": "FP8", "producer": {"name": "modelopt"}, "ignore": ["lm_head"]}
    assert make(quantization_config=quantization).quantization == "fp8 per tensor"
