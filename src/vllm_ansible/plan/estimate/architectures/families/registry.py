"""Which architectures are known, and in which family's module each is put together.

Modules are named, not imported: a question about one model loads one family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_ansible.plan.estimate.architectures.families.decoder import Outline
    from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

    Build = Callable[[Outline, tuple[Tensor, ...]], Model]

# An architecture as `module.function` of this package.
DECODERS: Mapping[str, str] = {
    "LlamaForCausalLM": "llama.llama",
    "LLaMAForCausalLM": "llama.llama",
    "InternLM3ForCausalLM": "llama.llama",
    "TeleChat3ForCausalLM": "llama.llama",
    "GraniteForCausalLM": "llama.llama",
    "MistralForCausalLM": "llama.mistral",
    "Ministral3ForCausalLM": "llama.mistral",
    "Qwen2ForCausalLM": "llama.qwen2",
    "Qwen3ForCausalLM": "llama.qwen3",
    "MiMoForCausalLM": "llama.qwen2",
    "Phi3ForCausalLM": "llama.phi3",
    "GemmaForCausalLM": "llama.gemma",
    "Gemma2ForCausalLM": "llama.gemma2",
    "Gemma3ForCausalLM": "llama.gemma3",
    "Gemma4ForCausalLM": "gemma4.gemma4",
    "MixtralForCausalLM": "mixture.mixtral",
    "PhiMoEForCausalLM": "mixture.phi_moe",
    "Phi4MMForCausalLM": "phi4mm.phi4mm",
    "Qwen2MoeForCausalLM": "mixture.qwen2_moe",
    "Qwen3MoeForCausalLM": "mixture.qwen3_moe",
    "MiniMaxM2ForCausalLM": "mixture.minimax",
    "Glm4MoeForCausalLM": "mixture.glm",
    "GptOssForCausalLM": "mixture.gpt_oss",
    "Llama4ForCausalLM": "mixture.llama4",
    "DeepseekForCausalLM": "latent.deepseek",
    "DeepseekV2ForCausalLM": "latent.deepseek",
    "DeepseekV3ForCausalLM": "latent.deepseek",
    "DeepseekV32ForCausalLM": "latent.deepseek",
    "GlmMoeDsaForCausalLM": "latent.deepseek",
    "Glm4MoeLiteForCausalLM": "latent.deepseek",
    "KimiK2ForCausalLM": "latent.deepseek",
    "MistralLarge3ForCausalLM": "latent.deepseek",
    "DeepseekV4ForCausalLM": "compressed.deepseek_v4",
    "DeepseekV41Text": "deepseek_v41.deepseek_v41",
    "Qwen3NextForCausalLM": "hybrid.qwen3_next",
    "Qwen3_5ForCausalLM": "hybrid.qwen3_5",
    "Qwen3_5MoeForCausalLM": "hybrid.qwen3_5",
    "NemotronHForCausalLM": "hybrid.nemotron",
    "JambaForCausalLM": "hybrid.jamba",
    "KimiLinearForCausalLM": "kimi.kimi",
    "MiniMaxM3ForCausalLM": "mixture.minimax_m3",
    "MiniMaxM3SparseForCausalLM": "mixture.minimax_m3",
    "BailingMoeForCausalLM": "mixture.bailing",
    "BailingMoeV2ForCausalLM": "mixture.bailing",
    "BailingMoeV2_5ForCausalLM": "ling.ling_2_5",
    "BailingMoeV3ForCausalLM": "ling.ling_3",
    "SarvamMoEForCausalLM": "mixture.bailing",
    "SarvamMLAForCausalLM": "latent.sarvam",
    "Step3p5ForCausalLM": "step.step",
    "MiMoV2FlashForCausalLM": "mimo.mimo_v2",
    "MiMoV2ForCausalLM": "mimo.mimo_v2",
    "DeciLMForCausalLM": "searched.nemotron_nas",
    "IQuestCoderForCausalLM": "llama.llama",
    "SeedOssForCausalLM": "llama.seed_oss",
    "Ernie4_5ForCausalLM": "llama.ernie",
    "SmolLM3ForCausalLM": "llama.smollm3",
    "GlmForCausalLM": "llama.glm",
    "Glm4ForCausalLM": "llama.glm4",
    "ChatGLMModel": "llama.chatglm",
    "ChatGLMForConditionalGeneration": "llama.chatglm",
    "HunYuanDenseV1ForCausalLM": "llama.hunyuan",
    "ArceeForCausalLM": "llama.arcee",
    "ApertusForCausalLM": "llama.apertus",
    "Exaone4ForCausalLM": "llama.exaone4",
    "Olmo2ForCausalLM": "llama.olmo",
    "Olmo3ForCausalLM": "llama.olmo",
    "MuseGlimmerForCausalLM": "llama.muse",
    "Glm5NextForCausalLM": "glm_next.glm5_next",
    "HYV3ForCausalLM": "routed.hy3",
    "HYV4ForCausalLM": "hy4.hy4",
    "InklingForCausalLM": "inkling.inkling",
    "Qwen4ExpForCausalLM": "qwen4.qwen4_exp",
    "LagunaForCausalLM": "routed.laguna",
    "AfmoeForCausalLM": "routed.afmoe",
    "Ernie4_5_MoeForCausalLM": "routed.ernie_moe",
    "ExaoneMoeForCausalLM": "routed.exaone_moe",
    "ExaoneMoEForCausalLM": "routed.exaone_moe",
    "Lfm2ForCausalLM": "short_conv.lfm2",
    "Lfm2MoeForCausalLM": "short_conv.lfm2_moe",
    "CohereForCausalLM": "cohere.command_r",
    "Cohere2ForCausalLM": "cohere.command_a",
    "FalconH1ForCausalLM": "falcon.falcon_h1",
    "LongcatFlashForCausalLM": "longcat.longcat",
    "LongcatFlashNgramForCausalLM": "longcat.longcat",
    "Step3TextForCausalLM": "step.step3",
}

# Draft models, which only propose tokens beside another model.
DRAFTS: Mapping[str, str] = {
    "EagleLlamaForCausalLM": "eagle.eagle",
    "LlamaForCausalLMEagle3": "eagle.eagle3_llama",
    "Eagle3LlamaForCausalLM": "eagle.eagle3_llama",
    "Eagle3MiniMaxM2ForCausalLM": "eagle.eagle3_llama",
    "Eagle3Qwen2_5vlForCausalLM": "eagle.eagle3_llama",
    "Eagle3Qwen3vlForCausalLM": "eagle.eagle3_llama",
    "Eagle3Qwen3ForCausalLM": "eagle.eagle3_qwen3",
}

# The decoder inside, and the style of its vision tower.
TOWERS: Mapping[str, tuple[str, str]] = {
    "Qwen2VLForConditionalGeneration": ("Qwen2ForCausalLM", "QWEN2"),
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2ForCausalLM", "QWEN25"),
    "Qwen3VLForConditionalGeneration": ("Qwen3ForCausalLM", "QWEN3"),
    "Qwen3VLMoeForConditionalGeneration": ("Qwen3MoeForCausalLM", "QWEN3"),
    "Qwen3OmniMoeForConditionalGeneration": ("Qwen3MoeForCausalLM", "QWEN3"),
    "Qwen3OmniMoeThinkerForConditionalGeneration": ("Qwen3MoeForCausalLM", "QWEN3"),
    "Qwen2AudioForConditionalGeneration": ("Qwen2ForCausalLM", "QWEN2_AUDIO"),
    "VoxtralForConditionalGeneration": ("LlamaForCausalLM", "VOXTRAL"),
    "Qwen3_5ForConditionalGeneration": ("Qwen3_5ForCausalLM", "QWEN3"),
    "Qwen3_5MoeForConditionalGeneration": ("Qwen3_5MoeForCausalLM", "QWEN3"),
    "Glm4vMoeForConditionalGeneration": ("Glm4MoeForCausalLM", "OUTLINE"),
    "Llama4ForConditionalGeneration": ("Llama4ForCausalLM", "OUTLINE"),
    "Mistral3ForConditionalGeneration": ("MistralForCausalLM", "PIXTRAL"),
    "Gemma3ForConditionalGeneration": ("Gemma3ForCausalLM", "OUTLINE"),
    "Gemma4ForConditionalGeneration": ("Gemma4ForCausalLM", "GEMMA4"),
    "KimiK25ForConditionalGeneration": ("DeepseekV3ForCausalLM", "MOON"),
    "KimiK3ForConditionalGeneration": ("KimiLinearForCausalLM", "OUTLINE"),
    "MiniMaxM3SparseForConditionalGeneration": ("MiniMaxM3SparseForCausalLM", "OUTLINE"),
    "Step3p7ForConditionalGeneration": ("Step3p5ForCausalLM", "OUTLINE"),
    "Step3VLForConditionalGeneration": ("Step3TextForCausalLM", "STEP3"),
    "DeepseekV41ForCausalLM": ("DeepseekV41Text", "DEEPSEEK_V41"),
    "Cohere2VisionForConditionalGeneration": ("Cohere2ForCausalLM", "OUTLINE"),
    "MuseGlimmerForConditionalGeneration": ("MuseGlimmerForCausalLM", "MUSE"),
    "Glm5NextForConditionalGeneration": ("Glm5NextForCausalLM", "OUTLINE"),
    "InklingForConditionalGeneration": ("InklingForCausalLM", "FOLDED"),
    "Qwen4ExpForConditionalGeneration": ("Qwen4ExpForCausalLM", "QWEN3"),
    "BailingMoeV3VLForConditionalGeneration": ("BailingMoeV3ForCausalLM", "OUTLINE"),
}

# Of MiniMax-M3 the layers that have experts, which are those that choose among tokens.
M3_LAYERS = [0] * 3 + [1] * 57

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
    # Of Qwen2-Audio's text part, which is said to be a Qwen2 and little else.
    "qwen2_audio": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    # What vLLM 0.32's own class takes where transformers 5 names layers by other keys.
    "minimax_m3_vl_text": {
        "moe_layer_freq": M3_LAYERS,
        "n_shared_experts": 1,
        "use_routing_bias": True,
        "sparse_attention_config": {
            "sparse_attention_freq": M3_LAYERS,
            "sparse_num_index_heads": 4,
            "sparse_index_dim": 128,
        },
    },
    "muse_glimmer_text": {"sliding_window": 2048, "sliding_window_pattern": 4},
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
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
    "glm4v_moe_text": "Glm4MoeForCausalLM",
    "mimo": "MiMoForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "deepseek_v41_text": "DeepseekV41Text",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "jamba": "JambaForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "minimax_m3": "MiniMaxM3SparseForCausalLM",
    "sarvam_moe": "SarvamMoEForCausalLM",
    "sarvam_mla": "SarvamMLAForCausalLM",
    "step3p5": "Step3p5ForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "nemotron-nas": "DeciLMForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "chatglm": "ChatGLMModel",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "muse_glimmer_text": "MuseGlimmerForCausalLM",
    "glm5_next_text": "Glm5NextForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "hy_v4": "HYV4ForCausalLM",
    "inkling_text": "InklingForCausalLM",
    "qwen4_exp_text": "Qwen4ExpForCausalLM",
    "laguna": "LagunaForCausalLM",
    "afmoe": "AfmoeForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "longcat_flash": "LongcatFlashForCausalLM",
    "longcat_flash_ngram": "LongcatFlashNgramForCausalLM",
    "step3_text": "Step3TextForCausalLM",
}


def builder(architecture: str) -> Build:
    """Return what builds a known architecture."""
    module, _, function = {**DECODERS, **DRAFTS}[architecture].partition(".")
    found: Build = getattr(
        import_module(f"vllm_ansible.plan.estimate.architectures.families.{module}"), function
    )
    return found
