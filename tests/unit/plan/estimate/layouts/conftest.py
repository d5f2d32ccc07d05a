"""Models of published shapes, and questions about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.request import Request

R1: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "r1": R1,
    "r1-bf16": {key: value for key, value in R1.items() if key != "quantization_config"},
    "r1-awq": {**R1, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}},
    "llama-8b": LLAMA_8B,
    "llama-70b": {
        **LLAMA_8B,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
    "tied": {**LLAMA_8B, "tie_word_embeddings": True},
    "qwen3-235b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "torch_dtype": "bfloat16",
    },
}

Models = Callable[[str], Model]
Ask = Callable[..., Request]


@pytest.fixture(scope="session")
def model() -> Models:
    """Return what makes the model of a name."""
    made: dict[str, Model] = {}

    def one(name: str) -> Model:
        if name not in made:
            made[name] = understand(Settings(SHAPES[name], "config.json"), name)
        return made[name]

    return one


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Return the path of DeepSeek-R1's configuration."""
    path = tmp_path / "r1" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(R1), encoding="utf-8")
    return str(path)


@pytest.fixture
def ask(model: Models) -> Ask:
    """Return what asks for a model on a line of machines."""

    def one(name: str, line: str, **more: Any) -> Request:
        return Request(model(name), machines(line), **more)

    return one
