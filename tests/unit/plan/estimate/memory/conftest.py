"""Small models of each mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand

BASE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "first_k_dense_replace": 1,
}
LINEAR = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 3,
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"]},
    "tied": {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True},
    "mixture": {"architectures": ["Qwen3MoeForCausalLM"], **EXPERTS},
    "latent": {"architectures": ["DeepseekV3ForCausalLM"], **LATENT},
    "hybrid": {"architectures": ["Qwen3NextForCausalLM"], **EXPERTS, **LINEAR},
    "windows": {
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    },
}


def small(name: str, **changes: Any) -> Model:
    """Return a small model."""
    return understand(Settings({**BASE, **SHAPES[name], **changes}, "config.json"), name)


@pytest.fixture(scope="session")
def make() -> Callable[..., Model]:
    """Return what makes small models by the name of their mechanism."""
    return small
