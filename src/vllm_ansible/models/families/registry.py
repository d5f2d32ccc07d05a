"""Which architectures are known, and how each is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from vllm_ansible.models.families import compressed, gemma4, hybrid, latent, llama, mixture, vision
from vllm_ansible.models.families.decoder import Outline
from vllm_ansible.models.model import Model, Tensor

Build = Callable[[Outline, tuple[Tensor, ...]], Model]


@dataclass(frozen=True)
class Known:
    """How an architecture is built; a tower where it sees."""

    build: Build
    tower: vision.Style | None = None


def _dense(traits: llama.Traits) -> Build:
    return lambda outline, others: llama.dense(outline, traits, others)


def _qwen_moe(traits: llama.Traits) -> Build:
    return lambda outline, others: mixture.qwen_moe(outline, traits, others)


_qwen3_next: Build = partial(hybrid.qwen_hybrid, everywhere=("embedding", "head"))
_qwen3_5: Build = partial(hybrid.qwen_hybrid, everywhere=("embedding",))

DECODERS: Mapping[str, Build] = {
    **dict.fromkeys(
        (
            "LlamaForCausalLM",
            "LLaMAForCausalLM",
            "InternLM3ForCausalLM",
            "TeleChat3ForCausalLM",
            "GraniteForCausalLM",
        ),
        _dense(llama.LLAMA),
    ),
    **dict.fromkeys(("MistralForCausalLM", "Ministral3ForCausalLM"), _dense(llama.MISTRAL)),
    "Qwen2ForCausalLM": _dense(llama.QWEN2),
    "Qwen3ForCausalLM": _dense(llama.QWEN3),
    "Phi3ForCausalLM": _dense(llama.PHI3),
    "GemmaForCausalLM": _dense(llama.GEMMA),
    "Gemma2ForCausalLM": _dense(llama.GEMMA2),
    "Gemma3ForCausalLM": _dense(llama.GEMMA3),
    "Gemma4ForCausalLM": gemma4.gemma4,
    "MixtralForCausalLM": mixture.mixtral,
    "Qwen2MoeForCausalLM": _qwen_moe(llama.QWEN2),
    "Qwen3MoeForCausalLM": _qwen_moe(llama.QWEN3),
    "MiniMaxM2ForCausalLM": mixture.minimax,
    "Glm4MoeForCausalLM": mixture.glm,
    "GptOssForCausalLM": mixture.gpt_oss,
    "Llama4ForCausalLM": mixture.llama4,
    **dict.fromkeys(
        (
            "DeepseekForCausalLM",
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "GlmMoeDsaForCausalLM",
            "Glm4MoeLiteForCausalLM",
            "KimiK2ForCausalLM",
            "MistralLarge3ForCausalLM",
        ),
        latent.deepseek,
    ),
    "DeepseekV4ForCausalLM": compressed.deepseek_v4,
    "Qwen3NextForCausalLM": _qwen3_next,
    "Qwen3_5ForCausalLM": _qwen3_5,
    "Qwen3_5MoeForCausalLM": _qwen3_5,
    "NemotronHForCausalLM": hybrid.nemotron,
}

TOWERS: Mapping[str, tuple[str, vision.Style]] = {
    "Qwen2VLForConditionalGeneration": ("Qwen2ForCausalLM", vision.QWEN2),
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2ForCausalLM", vision.QWEN25),
    "Qwen3VLForConditionalGeneration": ("Qwen3ForCausalLM", vision.QWEN3),
    "Qwen3VLMoeForConditionalGeneration": ("Qwen3MoeForCausalLM", vision.QWEN3),
    "Qwen3_5ForConditionalGeneration": ("Qwen3_5ForCausalLM", vision.QWEN3),
    "Qwen3_5MoeForConditionalGeneration": ("Qwen3_5MoeForCausalLM", vision.QWEN3),
    "Llama4ForConditionalGeneration": ("Llama4ForCausalLM", vision.OUTLINE),
    "Mistral3ForConditionalGeneration": ("MistralForCausalLM", vision.PIXTRAL),
    "Gemma3ForConditionalGeneration": ("Gemma3ForCausalLM", vision.OUTLINE),
    "Gemma4ForConditionalGeneration": ("Gemma4ForCausalLM", vision.OUTLINE),
    "KimiK25ForConditionalGeneration": ("DeepseekV3ForCausalLM", vision.MOON),
}

# What `transformers` fills in where a family's published configurations leave it out.
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
}

# What `model_type` says of a decoder whose class is not named.
TYPES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "ministral3": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
}
