"""The public deployments of measured-deployments.csv: their rows, and whose model each has."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vllm_ansible.accelerators.accelerator import Accelerator, accelerator
from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.memory.kernels import USUAL, Kernels
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.problem import PlanError

FACTS = Path(__file__).parents[4] / "data" / "public"
TABLE = FACTS / "measured-deployments.csv"
PARAMETERS = json.loads((FACTS / "parameters.json").read_text(encoding="utf-8"))
GIB = 2**30

FP8_DYNAMIC = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        }
    },
}
FP8_STATIC = {
    "quant_method": "fp8",
    "activation_scheme": "static",
    "modules_to_not_convert": ["lm_head", "vision_tower", "multi_modal_projector"],
}
FBGEMM = {
    "quant_method": "fbgemm_fp8",
    "modules_to_not_convert": ["lm_head", "self_attn", "layers.0", "layers.125"],
}
INT8 = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}
    },
}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]}
BLOCK = {"quant_method": "fp8", "weight_block_size": [128, 128]}
V4 = {**BLOCK, "scale_fmt": "ue8m0", "expert_dtype": "fp4"}
# Experts in NVFP4; attention, shared experts and the first layers as they were.
NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "exclude_modules": [
        "lm_head",
        "*self_attn*",
        "*shared_experts*",
        "model.layers.0.*",
        "model.layers.1.*",
        "model.layers.2.*",
        "model.layers.78*",
    ],
}
KIMI_INT4 = {
    "quant_method": "compressed-tensors",
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        }
    },
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
# Of Gemma 4's 4-bit checkpoint, whose embeddings and towers are as they were.
QAT = {
    "quant_method": "compressed-tensors",
    "ignore": ["lm_head", "re:.*vision.*", "re:.*audio.*", "re:.*embed.*"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        }
    },
}
R1 = "deepseek-ai--DeepSeek-R1"
LLAMA_70B = "meta-llama--Meta-Llama-3.1-70B"
LLAMA_8B = "meta-llama--Meta-Llama-3.1-8B"
QWEN_235B = "Qwen--Qwen3-235B-A22B"


def kept(name: str, **changed: object) -> dict[str, object]:
    """Return a configuration beside the table with some of its values changed."""
    values: dict[str, object] = json.loads(
        (FACTS / "configs" / f"{name}_config.json").read_text(encoding="utf-8")
    )
    return {**values, **changed}


# Published shapes that no configuration beside the table has.
SHAPES: dict[str, dict[str, object]] = {
    # As first published, with the KV heads doubled for 16 ranks.
    "llama3.1-405b": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 16384,
        "intermediate_size": 53248,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "num_key_value_heads": 16,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    },
    "llama3-8b": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    },
    "ministral": {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "text_config": {
            "model_type": "ministral3",
            "hidden_size": 5120,
            "intermediate_size": 16384,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 131072,
            "max_position_embeddings": 262144,
        },
        "vision_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
    },
    "qwen32b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
    },
    "qwq-32b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 40960,
    },
    "qwen14b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
    },
    # The decoder as transformers' test of Qwen3.5 has it, the tower as Qwen3.5-35B-A3B's.
    "qwen3.8-27b": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text",
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 48,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "rope_parameters": {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
        },
        "vision_config": {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "out_hidden_size": 5120,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "in_channels": 3,
        },
    },
    # As anthony-chaudhary/fak#12635 lists it.
    "deepseek-v4-flash": {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "hidden_size": 4096,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 43,
        "num_attention_heads": 64,
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 1024,
        "o_lora_rank": 1024,
        "o_groups": 8,
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 512,
        "sliding_window": 128,
        "compress_ratios": [0, 0, *([4, 128] * 20), 4],
        "num_hash_layers": 3,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 6,
        "vocab_size": 129280,
        "max_position_embeddings": 1048576,
    },
    "qwen2.5-0.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "qwen2.5-1.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "qwen2.5-7b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    },
    "qwen2-72b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    },
    "qwen2.5-vl-7b": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
        },
    },
    "qwen3-14b": {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
    },
    # The defaults of transformers' Qwen3.5 with the tower's output as wide as the decoder.
    "qwen3.5-9b": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text",
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
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "rope_parameters": {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
        },
        "vision_config": {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "out_hidden_size": 4096,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "in_channels": 3,
        },
    },
    # Its cache alone is judged: a log says the page of its states and of a block.
    "qwen3.5-122b": {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 3072,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
    },
    "gemma-3-27b": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "rope_local_base_freq": 10000,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
        },
        "vision_config": {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "patch_size": 14,
            "image_size": 896,
        },
        "mm_tokens_per_image": 256,
    },
    "mistral-7b": {
        "architectures": ["MistralForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
    },
    "phi-3-small": {
        "architectures": ["Phi3SmallForCausalLM"],
        "model_type": "phi3small",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "ff_intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 100352,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "qwen72b-vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3456,
            "num_heads": 16,
            "patch_size": 14,
        },
    },
}

# Of the fresh set of 27 November 2026.
SHAPES |= {
    "qwen3-30b-2507": kept("Qwen--Qwen3-30B-A3B", max_position_embeddings=262144),
    "qwen3-235b-2507-fp8": kept("Qwen--Qwen3-235B-A22B-FP8", max_position_embeddings=262144),
    "r1-qwen-7b": {**SHAPES["qwen2.5-7b"], "max_position_embeddings": 131072},
    "qwen2.5-math-1.5b": {**SHAPES["qwen2.5-1.5b"], "max_position_embeddings": 4096},
    "qwen2.5-14b": {**SHAPES["qwen14b"], "max_position_embeddings": 32768},
    "qwen2.5-32b": {**SHAPES["qwen32b"], "max_position_embeddings": 32768},
    "qwen2.5-3b": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "qwen3-4b": {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
    "orpheus-3b": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 156940,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "ministral-8b": {
        "architectures": ["MistralForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 32768,
    },
    "phi-4-mini": {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "vocab_size": 200064,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 4096,
        "max_position_embeddings": 131072,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0] * 48},
        "tie_word_embeddings": True,
    },
    "nemotron-nano-9b": {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "hidden_size": 4480,
        "intermediate_size": 15680,
        "num_hidden_layers": 56,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "qwen2.5-vl-3b": {
        **SHAPES["qwen2.5-vl-7b"],
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 2048,
            "patch_size": 14,
        },
    },
    "qwen3.5-4b": kept(
        "Qwen--Qwen3.5-35B-A3B",
        architectures=["Qwen3_5ForConditionalGeneration"],
        model_type="qwen3_5",
        tie_word_embeddings=True,
        text_config={
            "model_type": "qwen3_5_text",
            "hidden_size": 2560,
            "intermediate_size": 9216,
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
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "vocab_size": 248320,
            "max_position_embeddings": 262144,
            "tie_word_embeddings": True,
            "rope_parameters": {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
        },
        vision_config={
            "depth": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_heads": 16,
            "out_hidden_size": 2560,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "in_channels": 3,
        },
    ),
    # Its towers' sizes are the defaults of transformers.
    "gemma-4-e2b": {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "tie_word_embeddings": True,
        "vision_soft_tokens_per_image": 280,
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_hidden_layers": 35,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 512,
            "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
            "vocab_size": 262144,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 16,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "head_dim": 64,
            "patch_size": 16,
            "pooling_kernel_size": 3,
            "position_embedding_size": 10240,
        },
        "audio_config": {
            "model_type": "gemma4_audio",
            "hidden_size": 1024,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "conv_kernel_size": 5,
            "subsampling_conv_channels": [128, 32],
            "output_proj_dims": 1536,
        },
    },
}

SHAPES |= {
    "llama3-70b": kept("meta-llama--Meta-Llama-3.1-70B", rope_scaling=None)
    | {"max_position_embeddings": 8192},
    "r1-qwen-1.5b": {
        **SHAPES["qwen2.5-1.5b"],
        "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
    },
    "gemma-3-12b": {
        **SHAPES["gemma-3-27b"],
        "text_config": {
            **SHAPES["gemma-3-27b"]["text_config"],  # type: ignore[dict-item]
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
        },
    },
    "glm-4-9b": {
        "architectures": ["ChatGLMModel"],
        "model_type": "chatglm",
        "hidden_size": 4096,
        "ffn_hidden_size": 13696,
        "num_layers": 40,
        "num_attention_heads": 32,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "kv_channels": 128,
        "add_qkv_bias": True,
        "padded_vocab_size": 151552,
        "seq_length": 131072,
        "tie_word_embeddings": False,
    },
    "qwen3-vl-2b": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
            "max_position_embeddings": 262144,
            "rope_scaling": {"mrope_section": [24, 20, 20], "rope_type": "default"},
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "depth": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_heads": 16,
            "out_hidden_size": 2048,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 2304,
            "in_channels": 3,
            "deepstack_visual_indexes": [5, 11, 17],
        },
    },
    "granite-3.3-2b": {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 49159,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "mistral-nemo": {
        "architectures": ["MistralForCausalLM"],
        "hidden_size": 5120,
        "intermediate_size": 14336,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
    },
    "qwen2-vl-7b": {
        **SHAPES["qwen2.5-7b"],
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "vision_config": {
            "depth": 32,
            "embed_dim": 1280,
            "hidden_size": 3584,
            "mlp_ratio": 4,
            "num_heads": 16,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "in_chans": 3,
        },
    },
}

SHAPES |= {
    "phi-4": {
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 10,
        "vocab_size": 100352,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
    },
    # The defaults of transformers, which are this model's.
    "glm-4.7-flash": {
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "model_type": "glm4_moe_lite",
        "hidden_size": 2048,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "q_lora_rank": 768,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
        "vocab_size": 154880,
        "max_position_embeddings": 202752,
        "tie_word_embeddings": False,
    },
    "qwen3.5-2b": {
        **SHAPES["qwen3.5-4b"],
        "text_config": {
            **SHAPES["qwen3.5-4b"]["text_config"],  # type: ignore[dict-item]
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "linear_num_value_heads": 16,
        },
        "vision_config": {
            **SHAPES["qwen3.5-4b"]["vision_config"],  # type: ignore[dict-item]
            "out_hidden_size": 2048,
        },
    },
}

SHAPES |= {
    # The defaults of transformers but for the pools of its indexer.
    "glm-5.3-flash": {**PARAMETERS["glm5_next"]["config"], "index_kpool": 4},
    "olmo-3-7b": {
        **PARAMETERS["olmo3"]["config"],
        "vocab_size": 100278,
        "max_position_embeddings": 65536,
    },
    "exaone-4-32b": {
        **PARAMETERS["exaone4"]["config"],
        "hidden_size": 5120,
        "intermediate_size": 27392,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "layer_types": PARAMETERS["exaone4"]["config"]["layer_types"] * 2,
        "max_position_embeddings": 131072,
    },
    "glm-4.5-air": {
        "architectures": ["Glm4MoeForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_bias": True,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
        "use_qk_norm": False,
        "vocab_size": 151552,
        "max_position_embeddings": 131072,
    },
    "mistral-7b-v0.3": {**SHAPES["mistral-7b"], "vocab_size": 32768},
    "gemma-2-9b": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_hidden_layers": 42,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "sliding_window": 4096,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    "deepseek-coder-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "vocab_size": 102400,
        "max_position_embeddings": 163840,
    },
    "nemotron-3-nano-30b": kept(
        "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        hidden_size=2688,
        num_hidden_layers=52,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        mamba_num_heads=64,
        n_routed_experts=128,
        num_experts_per_tok=6,
        intermediate_size=1856,
        moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
        moe_latent_size=None,
        num_nextn_predict_layers=0,
    ),
    "ministral-3b": {
        **SHAPES["ministral"],
        "tie_word_embeddings": True,
        "text_config": {
            **SHAPES["ministral"]["text_config"],  # type: ignore[dict-item]
            "hidden_size": 3072,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "tie_word_embeddings": True,
        },
    },
}
SHAPES["glm-4.6"] = {
    **SHAPES["glm-4.5-air"],
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 92,
    "n_routed_experts": 160,
    "first_k_dense_replace": 3,
    "use_qk_norm": True,
    "max_position_embeddings": 202752,
}

# For each model of the table: whose configuration it has, and how it is quantized.
MODELS: dict[str, tuple[str, object]] = {
    "deepseek-ai/DeepSeek-R1": (R1, None),
    "deepseek-ai/DeepSeek-V3": (R1, None),
    "deepseek-ai/DeepSeek-V3.2": ("deepseek-ai--DeepSeek-V3.2", None),
    "DeepSeek-V3 W8A8": (R1, INT8),
    "DeepSeek-R1-Distill-Qwen-32B": ("qwen32b", None),
    "DeepSeek-V4-Flash-0731": ("deepseek-v4-flash", BLOCK),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": (QWEN_235B, None),
    "RedHatAI/Qwen3-235B-A22B-FP8-dynamic": (QWEN_235B, FP8_DYNAMIC),
    "Qwen2.5-VL-72B": ("qwen72b-vl", None),
    "Qwen3-Coder-480B-A35B-Instruct-FP8": ("Qwen--Qwen3-Coder-480B-A35B-Instruct", BLOCK),
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": (LLAMA_70B, FP8_DYNAMIC),
    "meta-llama/Llama-3.3-70B-Instruct": (LLAMA_70B, None),
    "nvidia/Llama-3.3-70B-Instruct-FP8": (LLAMA_70B, MODELOPT),
    "meta-llama/Meta-Llama-3-8B": ("llama3-8b", None),
    "meta-llama/Llama-3.1-8B-Instruct": (LLAMA_8B, None),
    "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8": ("llama3.1-405b", FBGEMM),
    "RedHatAI/Ministral-3-14B-Instruct-2512": ("ministral", FP8_STATIC),
    "mistralai/Ministral-3-14B-Reasoning-2512": ("ministral", None),
    "openai/gpt-oss-120b": ("openai--gpt-oss-120b", None),
    "qwen3.6-35b-a3b-nvfp4": ("Qwen--Qwen3.5-35B-A3B", None),
    # Of the rows that were held out.
    "openai/gpt-oss-20b": ("openai--gpt-oss-20b", None),
    "Qwen/Qwen3-0.6B": ("Qwen--Qwen3-0.6B", None),
    "Qwen/Qwen3-32B": ("Qwen--Qwen3-32B", None),
    "Qwen/QwQ-32B": ("qwq-32b", None),
    "Qwen/Qwen3-30B-A3B": ("Qwen--Qwen3-30B-A3B", None),
    "Qwen/Qwen3-235B-A22B-FP8": ("Qwen--Qwen3-235B-A22B-FP8", None),
    "Qwen/Qwen3.8-27B-FP8": ("qwen3.8-27b", BLOCK),
    "MiniMaxAI/MiniMax-M2.5": ("MiniMaxAI--MiniMax-M2.5", None),
    "lukealonso/GLM-5.1-NVFP4-MTP": ("zai-org--GLM-5", NVFP4),
    "moonshotai/Kimi-K2.6": ("moonshotai--Kimi-K2.5", None),
    "moonshotai/Kimi-K2-Thinking": ("moonshotai--Kimi-K2-Instruct", KIMI_INT4),
    "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8": (LLAMA_70B, INT8),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": ("qwen14b", None),
    # Of the rows of 27 November 2026.
    "deepseek-ai/DeepSeek-V4-Flash-0731": ("deepseek-v4-flash", V4),
    "deepseek-ai/DeepSeek-V4.1-Flash": ("deepseek-ai--DeepSeek-V4.1-Flash", None),
    "zai-org/GLM-5.3-Flash": ("glm-5.3-flash", BLOCK),
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2.5-0.5b", None),
    "Qwen/Qwen2.5-1.5B-Instruct": ("qwen2.5-1.5b", None),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2.5-7b", None),
    "RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic": ("qwen2.5-7b", FP8_DYNAMIC),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": ("qwen2.5-7b", GPTQ),
    "Qwen/Qwen2-72B-Instruct-GPTQ-Int8": ("qwen2-72b", {**GPTQ, "bits": 8}),
    "Qwen/Qwen2.5-VL-7B-Instruct": ("qwen2.5-vl-7b", None),
    "Qwen/Qwen2.5-14B-Instruct": ("qwen14b", None),
    "Qwen/Qwen3-8B": ("Qwen--Qwen3-8B", None),
    "Qwen/Qwen3-14B": ("qwen3-14b", None),
    "Qwen/Qwen3-14B-AWQ": ("qwen3-14b", AWQ),
    "Qwen/Qwen3.5-9B": ("qwen3.5-9b", None),
    "Qwen/Qwen3.6-27B-FP8": ("qwen3.8-27b", BLOCK),
    "qwen3.5-122b-a10b-awq": ("qwen3.5-122b", None),
    "cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit": ("Qwen--Qwen3.5-35B-A3B", None),
    "google/gemma-3-27b-it": ("gemma-3-27b", None),
    "google/gemma-4-26B-A4B": ("google--gemma-4-26B-A4B", None),
    "nvidia/Gemma-4-26B-A4B-NVFP4": ("google--gemma-4-26B-A4B", None),
    "deepseek-ai/DeepSeek-R1-0528": (R1, None),
    "meta-llama/Llama-3.1-70B-Instruct": (LLAMA_70B, None),
    "tokyotech-llm/Llama-3.1-Swallow-8B-Instruct-v0.1": (LLAMA_8B, None),
    "mistralai/Mistral-7B-Instruct-v0.2-GPTQ": ("mistral-7b", GPTQ),
    "microsoft/Phi-3-small-8k-instruct": ("phi-3-small", None),
    "moonshotai/Kimi-K3": ("moonshotai--Kimi-K3", None),
    # Of the fresh set.
    "Qwen/Qwen3-4B": ("qwen3-4b", None),
    "Qwen/Qwen3-8B-AWQ": ("Qwen--Qwen3-8B", AWQ),
    "Qwen/Qwen3-8B-FP8": ("Qwen--Qwen3-8B", BLOCK),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ("qwen3-30b-2507", None),
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": ("qwen3-235b-2507-fp8", None),
    "Qwen/Qwen3-VL-30B-A3B-Instruct": ("Qwen--Qwen3-VL-30B-A3B-Instruct", None),
    "Qwen/Qwen3.5-4B": ("qwen3.5-4b", None),
    "Qwen/Qwen2.5-3B-Instruct": ("qwen2.5-3b", None),
    "Qwen/Qwen2.5-7B-Instruct-AWQ": ("qwen2.5-7b", AWQ),
    "Qwen/Qwen2.5-32B-Instruct-AWQ": ("qwen2.5-32b", AWQ),
    "Qwen/Qwen2.5-Coder-14B-Instruct-AWQ": ("qwen2.5-14b", AWQ),
    "Qwen/Qwen2.5-Math-1.5B": ("qwen2.5-math-1.5b", None),
    "Qwen/Qwen2.5-VL-3B-Instruct": ("qwen2.5-vl-3b", None),
    "amd/Llama-3.3-70B-Instruct-FP8-KV": (LLAMA_70B, MODELOPT),
    "canopylabs/orpheus-3b-0.1-ft": ("orpheus-3b", None),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": ("r1-qwen-7b", None),
    "deepseek-ai/DeepSeek-V4-Flash-Base": ("deepseek-v4-flash", {**V4, "expert_dtype": "fp8"}),
    "google/gemma-4-E2B-it": ("gemma-4-e2b", None),
    "google/gemma-4-E2B-it-qat-w4a16-ct": ("gemma-4-e2b", QAT),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        None,
    ),
    "microsoft/Phi-4-mini-instruct": ("phi-4-mini", None),
    "mistralai/Ministral-8B-Instruct-2410": ("ministral-8b", None),
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": ("nemotron-nano-9b", None),
    # Of the third set.
    "TechxGenus/Meta-Llama-3-70B-Instruct-AWQ": ("llama3-70b", AWQ),
    "unsloth Llama-3.1-8B, merged": (LLAMA_8B, None),
    "zai-org/GLM-5.1-FP8": ("zai-org--GLM-5-FP8", None),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ("r1-qwen-1.5b", None),
    "google/gemma-3-12b-it": ("gemma-3-12b", None),
    "zai-org/glm-4-9b-chat": ("glm-4-9b", None),
    "Qwen/Qwen3-VL-2B-Instruct": ("qwen3-vl-2b", None),
    "Qwen/Qwen3-Reranker-8B": ("Qwen--Qwen3-8B", None),
    "Qwen/Qwen3.8-27B": ("qwen3.8-27b", None),
    "Qwen/Qwen2.5-7B": ("qwen2.5-7b", None),
    "ibm-granite/granite-3.3-2b-instruct": ("granite-3.3-2b", None),
    "a fine-tuned Phi-4-mini": ("phi-4-mini", None),
    "mistralai/Mistral-Nemo-Instruct-2407": ("mistral-nemo", None),
    "Qwen/Qwen2-VL-7B-Instruct": ("qwen2-vl-7b", None),
    "Qwen/Qwen2-VL-7B-Instruct-GPTQ-Int4": ("qwen2-vl-7b", GPTQ),
    "Qwen/Qwen3.6-35B-A3B": ("Qwen--Qwen3.5-35B-A3B", None),
    "MiniMaxAI/MiniMax-M3": ("MiniMaxAI--MiniMax-M3", None),
    # Of the fourth set.
    "Qwen/Qwen2-7B-Instruct": ("qwen2.5-7b", None),
    "a fine-tuned Llama-3.1-8B": (LLAMA_8B, None),
    "NousResearch/Hermes-3-Llama-3.1-8B": (LLAMA_8B, None),
    "vrfai/Qwen3.6-27B-FP8": ("qwen3.8-27b", None),
    "Qwen/Qwen3.5-2B": ("qwen3.5-2b", None),
    "mistralai/Ministral-3-14B-Instruct-2512": ("ministral", FP8_STATIC),
    "zai-org/GLM-4.7-Flash": ("glm-4.7-flash", None),
    "microsoft/phi-4": ("phi-4", None),
    "Qwen/Qwen2.5-14B-Instruct-AWQ": ("qwen2.5-14b", AWQ),
    "cyankiwi/OmniCoder-9B-AWQ-4bit": ("qwen3.5-9b", None),
    "Qwen/Qwen2.5-3B-Instruct-AWQ": ("qwen2.5-3b", AWQ),
    # Of the fifth set.
    "Qwen/Qwen2.5-72B-Instruct": ("qwen2-72b", None),
    "Qwen/Qwen3-4B-Instruct-2507-FP8": ("qwen3-4b", BLOCK),
    "Qwen/Qwen3-VL-32B-Instruct-FP8": ("Qwen--Qwen3-32B-FP8", None),
    "Qwen/Qwen3.6-27B": ("qwen3.8-27b", None),
    "QuantTrio/Qwen3-Coder-30B-A3B-Instruct-AWQ": ("qwen3-30b-2507", AWQ),
    "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4": (LLAMA_70B, AWQ),
    "ibnzterrell/Meta-Llama-3.3-70B-Instruct-AWQ-INT4": (LLAMA_70B, AWQ),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8": (LLAMA_8B, FP8_STATIC),
    "deepseek-ai/DeepSeek-V4-Flash": ("deepseek-v4-flash", V4),
    "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct": ("deepseek-coder-v2-lite", None),
    "allenai/Olmo-3-1025-7B": ("olmo-3-7b", None),
    "LGAI-EXAONE/EXAONE-4.0-32B-FP8": ("exaone-4-32b", BLOCK),
    "cpatonn/GLM-4.5-Air-AWQ-4bit": ("glm-4.5-air", QAT),
    "zai-org/GLM-4.6": ("glm-4.6", None),
    "zai-org/GLM-4.6-FP8": ("glm-4.6", FP8_DYNAMIC),
    "google/gemma-2-9b-it": ("gemma-2-9b", None),
    "mistralai/Mistral-7B-Instruct-v0.3": ("mistral-7b-v0.3", None),
    "mistralai/Ministral-3-3B-Instruct-2512": ("ministral-3b", FP8_STATIC),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8": ("nemotron-3-nano-30b", MODELOPT),
    "stepfun-ai/Step-3.5-Flash": ("stepfun-ai--Step-3.5-Flash", None),
    "tencent/Hy3-preview": ("hy_v3", None),
}

# Checkpoints of tied models that store a head of their own, as the page of their row lists them.
UNTIED = {
    "google/gemma-4-E2B-it-qat-w4a16-ct": Checkpoint(
        frozenset({"model.language_model.embed_tokens.weight", "lm_head.weight"}), {}, 8_316_000_000
    )
}

# The line has no version, but a date: V0 in February 2025 was 0.7.2.
DATED = {"vllm-project/vllm#13074": "0.7.2"}

# Printed by kernels that hold weights in a layout of their own.
VENDORS = {"vllm-project/vllm-ascend#2191": "Ascend's kernels keep their own layout"}


@dataclass
class Row:
    """One line of the table, and its columns as numbers where they are."""

    line: int
    text: dict[str, str]

    def number(self, column: str) -> float | None:
        found = re.match(r"~?-?\d+(?:\.\d+)?", self.text[column])
        return None if found is None else float(found[0].lstrip("~"))

    def whole(self, column: str) -> int | None:
        found = self.number(column)
        return None if found is None else int(found)

    @property
    def name(self) -> str:
        return f"{self.line}: {self.text['model']} ({self.text['source'][:40]})"

    @property
    def version(self) -> str | None:
        named = self.text["vllm_version"].split()
        return named[0] if named else DATED.get(self.text["source"])

    @property
    def prefix_caching(self) -> bool | None:
        """What the page or the log says; the release decides where neither does."""
        return {"": None, "no": False, "yes": True}[self.text["prefix_caching"]]

    def split(self) -> Split:
        expert = self.text["ep"].startswith("yes")
        data = self.whole("dp") if self.text["dp"] else 1
        context = self.whole("decode_context") or 1
        tensor, pipeline = self.whole("tp") or 1, self.whole("pp") or 1
        return Split(tensor, pipeline, data or 1, expert, decode_context=context)


COLUMNS = (
    "pp",
    "dp",
    "ep",
    "enforce_eager",
    "decode_context",
    "drafts",
    "text_only",
    "prefix_caching",
)


def rows(table: Path = TABLE) -> Iterator[Row]:
    with table.open(encoding="utf-8") as file:
        for line, text in enumerate(csv.DictReader(file), 2):
            yield Row(line, {**dict.fromkeys(COLUMNS, ""), **text})


def model_of(row: Row) -> Model | None:
    loaded = "fp8" if row.text["quantization"] == "fp8 on load" else ""
    return model(row.text["model"], loaded)


@lru_cache
def model(name: str, loaded: str = "") -> Model | None:
    """Return a model of the tables; `loaded` is the engine's option that quantizes on load."""
    if name not in MODELS:
        return None
    config, quantization = MODELS[name]
    if config in SHAPES:
        values = dict(SHAPES[config])
    elif config in PARAMETERS:
        values = dict(PARAMETERS[config]["config"])
    else:
        values = json.loads((FACTS / "configs" / f"{config}_config.json").read_text())
    if quantization is not None:
        values["quantization_config"] = quantization
    return understand(
        Settings(values, config), name, checkpoint=UNTIED.get(name), quantization=loaded
    )


def memory_of(row: Row) -> int | None:
    total = row.number("gpu_total_gib")
    if total is not None:
        return int(total * GIB)
    found = accelerator_of(row)
    return found.memory_bytes if found else None


def accelerator_of(row: Row) -> Accelerator | None:
    """Return the accelerator of a row, its memory in words left out of the name."""
    name = re.sub(r" \(.*\)| \d+GB$", "", row.text["gpu"])
    try:
        return accelerator(name)
    except PlanError:
        return None


def kernels_of(row: Row) -> Kernels:
    """Return what decides on the kernels of a row, which may name them."""
    found = accelerator_of(row)
    if found is None or "Marlin" in row.text["quantization"]:
        return USUAL
    kinds = {"nvidia": "cuda", "amd": "rocm"}
    return Kernels(kinds.get(found.kind, found.kind), found.capability)
