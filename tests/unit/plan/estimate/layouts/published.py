"""Models whose rates are public: whose configuration each has, and how it is quantized."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand

CONFIGS = Path(__file__).parents[4] / "data" / "public" / "configs"
BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
CHANNEL = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
}
QWEN_14B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
QWEN_1_5B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
GLM_AIR = {
    "architectures": ["Glm4MoeForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "use_qk_norm": False,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
}
GLM = {
    **GLM_AIR,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 92,
    "n_routed_experts": 160,
    "first_k_dense_replace": 3,
    "use_qk_norm": True,
    "max_position_embeddings": 202752,
}
QWEN_9B = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
}
# A configuration beside the tables, or a published shape; and what it is quantized to.
MODELS: dict[str, tuple[str | dict[str, object], dict[str, object] | None]] = {
    "deepseek-ai/DeepSeek-R1-0528": ("deepseek-ai--DeepSeek-R1", None),
    "deepseek-ai/DeepSeek-V3.2": ("deepseek-ai--DeepSeek-V3.2", None),
    "zai-org/GLM-4.5-Air": (GLM_AIR, None),
    "zai-org/GLM-4.6": (GLM, None),
    "zai-org/GLM-4.6-FP8": (GLM, CHANNEL),
    "zai-org/GLM-5.2-FP8": ("zai-org--GLM-5-FP8", None),
    "openai/gpt-oss-120b": ("openai--gpt-oss-120b", None),
    "openai/gpt-oss-20b": ("openai--gpt-oss-20b", None),
    "Qwen/Qwen2.5-1.5B-Instruct": (QWEN_1_5B, None),
    "Qwen/Qwen3-8B": ("Qwen--Qwen3-8B", None),
    "Qwen/Qwen3-14B": (QWEN_14B, None),
    "Qwen/Qwen3-14B-FP8": (QWEN_14B, BLOCK),
    "Qwen/Qwen3-14B-AWQ": (QWEN_14B, AWQ),
    "Qwen/Qwen3-32B": ("Qwen--Qwen3-32B", None),
    "Qwen/Qwen3-32B-FP8": ("Qwen--Qwen3-32B-FP8", None),
    "Qwen/Qwen3-32B-AWQ": ("Qwen--Qwen3-32B", AWQ),
    "Qwen/Qwen3-30B-A3B": ("Qwen--Qwen3-30B-A3B", None),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": ("Qwen--Qwen3-235B-A22B", None),
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": ("Qwen--Qwen3-235B-A22B-FP8", None),
    "Qwen/Qwen3.5-35B-A3B": ("Qwen--Qwen3.5-35B-A3B", None),
    "Qwen/Qwen3.5-9B": (QWEN_9B, None),
}


@lru_cache
def published(name: str) -> Model:
    """Return a model of the tables."""
    shape, quantization = MODELS[name]
    if isinstance(shape, str):
        values = json.loads((CONFIGS / f"{shape}_config.json").read_text(encoding="utf-8"))
    else:
        values = dict(shape)
    if quantization is not None:
        values["quantization_config"] = quantization
    return understand(Settings(values, name), name)
