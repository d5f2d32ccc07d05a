"""Models of every family, against the parameters that their authors count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.understand import UNHEARD, understand
from vllm_ansible.plan.estimate.memory.blocks import bytes_per_sequence, groups
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.kernels import Kernels, stretch
from vllm_ansible.plan.estimate.memory.kv_cache import kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import share, weights
from vllm_ansible.problem import PlanError

CONFIGS = Path(__file__).parents[4] / "data" / "public" / "configs"
NAMES = sorted(
    path.name.removesuffix("_config.json")
    for path in CONFIGS.glob("*_config.json")
    if not path.name.endswith("_hf_quant_config.json")
)
NO_PARAMETERS = (".scales", ".zeros", "kv_b_absorbed", ".conv1d_decode.weight")


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
    # Without tables of n-grams and layers that propose (vllm-project/recipes).
    "deepseek-ai--DeepSeek-V4.1-Flash": (552.0, 0.001),
    # 427.06 with the vision tower, which its text configuration does not have (datawhalechina/
    # self-llm#514).
    "MiniMaxAI--MiniMax-M3": (427.06, 0.003),
    # What the hub sums up of its safetensors: 2,779,931,837,184, the tower's among them.
    "moonshotai--Kimi-K3": (2779.931_837_184, 1e-4),
    "stepfun-ai--Step-3.5-Flash": (196.81, 0.001),
}

# Published shapes of models whose files are not beside: parameters as their pages count them.
JAMBA = {
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "vocab_size": 65536,
    "max_position_embeddings": 262144,
}
JAMBA_LARGE = {
    **JAMBA,
    "hidden_size": 8192,
    "intermediate_size": 24576,
    "num_hidden_layers": 72,
    "num_attention_heads": 64,
    "mamba_dt_rank": 512,
}
KIMI_LINEAR = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "mla_use_nope": True,
    "vocab_size": 163840,
    "max_position_embeddings": 1048576,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "head_dim": 128,
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}
LING_MINI = {
    "architectures": ["BailingMoeV2ForCausalLM"],
    "num_hidden_layers": 20,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "use_qk_norm": True,
    "moe_router_enable_expert_bias": True,
    "vocab_size": 157184,
    "max_position_embeddings": 32768,
}
SARVAM_30B = {
    **LING_MINI,
    "architectures": ["SarvamMoEForCausalLM"],
    "num_hidden_layers": 19,
    "hidden_size": 4096,
    "intermediate_size": 8192,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 64,
    "head_dim": 64,
    "num_experts": 128,
    "num_experts_per_tok": 6,
    "vocab_size": 262144,
    "max_position_embeddings": 131072,
}
SARVAM_105B = {
    **SARVAM_30B,
    "architectures": ["SarvamMLAForCausalLM"],
    "num_hidden_layers": 32,
    "intermediate_size": 16384,
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
# Kimi-Linear's is metadata.total_parameters of its index, Jamba-v0.1's the sum of its safetensors.
# Sarvam's names say less than their checkpoints hold; shapes are those of NVIDIA's Megatron-Bridge.
# Jamba-1.5-Large, Ling and Sarvam stand as cards and names round them: of these no index was read.
SHAPES = (
    (JAMBA, 51_570_323_328, 1e-12),
    (JAMBA_LARGE, 398.6e9, 1e-3),
    (KIMI_LINEAR, 49_122_681_728, 1e-12),
    (LING_MINI, 16.26e9, 1e-3),
    (SARVAM_30B, 30e9, 0.075),
    (SARVAM_105B, 105e9, 0.015),
)


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


@pytest.mark.parametrize(("shape", "published", "apart"), SHAPES)
def test_parameters_of_published_shapes_are_those_of_their_pages(
    shape: dict[str, object], published: float, apart: float
) -> None:
    model = understand(Settings(shape, "config.json"), "org/model")
    assert not model.more, "its family is known"
    assert parameters(model) == pytest.approx(published, rel=apart)


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
    # The index's total_size. The hub counts 2,722,740,830,208 numbers in U8, its routed experts,
    # and all others in BF16 and F32.
    assert configuration("moonshotai--Kimi-K3").bytes() == pytest.approx(
        1_560_860_324_864, rel=3e-4
    )


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


def test_kimi_keeps_a_state_of_three_layers_in_four() -> None:
    model = configuration("moonshotai--Kimi-K3")
    kinds = [layer.kv.kind for layer in model.layers]
    assert kinds == ["linear", "linear", "linear", "mla"] * 23 + ["mla"]
    # 3 x 3 x 12,288 in 16 bits, and 96 heads of 128 x 128 in 32.
    assert model.layers[0].kv.state_bytes == 3 * 3 * 12288 * 2 + 96 * 128 * 128 * 4
    assert [layer.experts for layer in model.layers[:3]] == [0, 896, 896]


def test_an_expert_of_kimi_k3_is_at_least_256_wide_on_a_rank() -> None:
    (first, *_) = [
        one for one in configuration("moonshotai--Kimi-K3").layers[1].tensors
        if one.role == "experts"
    ]  # fmt: skip
    assert [stretch(first, ranks, Kernels()) for ranks in (1, 8, 16)] == [1, 1, 256 / 192]


def test_minimax_m3_caches_a_key_of_its_indexer_behind_its_dense_layers() -> None:
    model = configuration("MiniMaxAI--MiniMax-M3")
    extra = [layer.kv.extra_bytes_per_token for layer in model.layers]
    assert extra == [0] * 3 + [256] * 57
    # Whole on each rank, where one of 4 KV heads has 512 bytes (vLLM 0.32's `MLAAttentionSpec`).
    for tensor in (4, 8):
        assert kv_bytes_per_token(model, Split(tensor)) == (60 * 2 * 128 * 2 + 57 * 256,)
    assert [layer.experts for layer in model.layers[2:4]] == [0, 128]


def test_jamba_attends_in_one_layer_of_eight() -> None:
    model = understand(Settings(JAMBA, "config.json"), "org/model")
    kinds = [layer.kv.kind for layer in model.layers]
    assert kinds == (["linear"] * 4 + ["gqa"] + ["linear"] * 3) * 4
    assert model.layers[0].kv.state_bytes == 3 * 8192 * 2 + 8192 * 16 * 2
    assert [layer.experts for layer in model.layers[:2]] == [0, 16]


def test_step_has_more_heads_where_it_sees_a_window() -> None:
    model = configuration("stepfun-ai--Step-3.5-Flash")
    assert [layer.kv.window for layer in model.layers[:5]] == [None, 512, 512, 512, None]
    assert {(layer.kv.heads, layer.kv.head_size) for layer in model.layers} == {(8, 128)}
    queries = [
        next(one.elements for one in layer.tensors if one.name.endswith("q_proj.weight"))
        for layer in model.layers[:2]
    ]
    assert queries == [64 * 128 * 4096, 96 * 128 * 4096]
    assert [layer.experts for layer in model.layers[2:4]] == [0, 288]


def test_deepseek_v4_1_has_the_files_of_its_recipe() -> None:
    """476 GiB: with 196.6 billion numbers of n-grams, and three layers of 128 experts that propose.

    The recipe of vllm-project/recipes rounds to 511 GB.
    """
    model = configuration("deepseek-ai--DeepSeek-V4.1-Flash")
    tables = (384_006_168 + 384_016_682) * (256 + 256 // 32)
    proposing = 3 * 128 * 3 * 5120 * 2304 * 17 / 32
    assert model.bytes() + tables + proposing == pytest.approx(511e9, rel=0.003)
    assert any("189 GiB of n-grams are in host memory" in one for one in model.assumed)
    routed = {one.bytes / one.elements for one in model.tensors() if one.name.endswith("w2.weight")}
    assert routed == {0.5}


@pytest.mark.parametrize(
    ("length", "dealt"), [(8192, 251_742_528), (131_072, 711_966_528), (1_048_576, 2_361_409_344)]
)
def test_deepseek_v4_1_takes_the_bytes_that_vllm_deals(length: int, dealt: int) -> None:
    """Blocks of 460,224 bytes: four sources, 40 windows in two groups, three rings (0.32)."""
    model = configuration("deepseek-ai--DeepSeek-V4.1-Flash")
    found = groups(model, Split(8), Request(length))
    assert sorted(one.per_sequence for one in found)[0] == 1
    assert len(found) == 4
    assert bytes_per_sequence(found) == (dealt,)


def test_four_layers_of_deepseek_v4_1_keep_every_token() -> None:
    """890 bytes a token of its makers are 288 of an entry and 68 of a key; Hopper's 584 and 132."""
    model = configuration("deepseek-ai--DeepSeek-V4.1-Flash")
    sources = [one for one in model.layers if one.kv.kind == "mla"]
    assert [one.index for one in sources] == [2, 8, 14, 20]
    states = sum(1 / one.kv.tokens_per_state for one in sources)
    assert states * (288 + 68) == 890
    kept = sum(
        one.kv.entry_bytes / one.kv.tokens_per_state + one.kv.extra_bytes_per_token
        for one in sources
    )
    assert kept == states * (584 + 132)
    assert (model.whole, model.tensor_divides, model.next_layers) == (True, 8, 0)
    assert configuration("deepseek-ai--DeepSeek-V4-Pro").tensor_divides == 16


def test_ratios_that_deepseek_v4_1_has_not_are_refused() -> None:
    read = json.loads((CONFIGS / "deepseek-ai--DeepSeek-V4.1-Flash_config.json").read_text("utf-8"))
    read["text_config"]["compress_ratios"] = [4] * 40
    with pytest.raises(PlanError, match="compress_ratios has 4, not 0, 1 or 2"):
        understand(Settings(read, "config.json"), "d")
    read["text_config"]["compress_ratios"] = [0, 0] + [1] * 38
    read["text_config"]["kv_source_layer_ids"] = [8, 14]
    with pytest.raises(PlanError, match="layer 2 compresses, and no kv_source_layer_ids is before"):
        understand(Settings(read, "config.json"), "d")
    # Without a tower and tables nothing is said of them.
    for key in ("engram_layer_ids", "engram_num_embeddings"):
        del read["text_config"][key]
    read["text_config"]["compress_ratios"] = [0] * 40
    del read["vision_config"]
    plain = understand(Settings(read, "config.json"), "d")
    assert not any("n-grams" in one for one in plain.assumed)
    assert not plain.others


def test_windows_are_where_the_configuration_has_them() -> None:
    model = configuration("openai--gpt-oss-20b")
    assert [layer.kv.window for layer in model.layers[:4]] == [128, None, 128, None]
    gemma = configuration("google--gemma-4-26B-A4B")
    assert {(layer.kv.heads, layer.kv.head_size) for layer in gemma.layers} == {(8, 256), (2, 512)}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        # What their makers print: 309 billion, 49.9, 550.
        ("XiaomiMiMo--MiMo-V2-Flash", 308.8e9),
        ("nvidia--Llama-3_3-Nemotron-Super-49B-v1", 49.87e9),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549.3e9),
    ],
)
def test_a_decoder_has_the_numbers_that_its_maker_prints(name: str, numbers: float) -> None:
    model = configuration(name)
    counted = sum(one.elements for one in model.tensors() if not one.name.endswith("scales"))
    assert counted == pytest.approx(numbers, rel=1e-3)
    assert not model.assumed


def test_values_of_mimo_are_smaller_than_its_keys_and_most_layers_see_a_window() -> None:
    model = configuration("XiaomiMiMo--MiMo-V2-Flash")
    first, second = model.layers[0].kv, model.layers[1].kv
    assert (first.kind, first.heads, first.head_size, first.value_size) == ("gqa", 4, 192, 128)
    assert (second.kind, second.heads, second.window) == ("sliding", 8, 128)
    assert [layer.experts for layer in model.layers[:2]] == [0, 256]


def test_a_searched_block_may_have_no_attention() -> None:
    model = configuration("nvidia--Llama-3_3-Nemotron-Super-49B-v1")
    kinds = [layer.kv.kind for layer in model.layers]
    assert kinds.count("gqa") == 49
    assert kinds.count("none") == 31


OMNI = {
    "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "audio_config": {
            "d_model": 1280,
            "encoder_layers": 32,
            "encoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "downsample_hidden_size": 480,
            "num_mel_bins": 128,
            "output_dim": 2048,
        },
        "text_config": {
            "model_type": "qwen3_omni_moe_text",
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "intermediate_size": 768,
            "vocab_size": 152064,
            "max_position_embeddings": 65536,
        },
        "vision_config": {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "num_position_embeddings": 2304,
            "in_channels": 3,
            "deepstack_visual_indexes": [8, 16, 24],
        },
    },
    "talker_config": {"text_config": {"hidden_size": 1024}},
}


def test_of_a_model_that_speaks_the_part_that_thinks_is_counted() -> None:
    """Its makers print 650 million numbers of the audio tower and 540 of the vision tower."""
    model = understand(Settings(OMNI, "config.json"), "Qwen/Qwen3-Omni-30B-A3B-Instruct")
    of = {
        kind: sum(one.elements for one in model.others if one.name.startswith(f"{kind}."))
        for kind in ("audio", "vision")
    }
    assert of["audio"] == pytest.approx(650e6, rel=0.01)
    assert of["vision"] == pytest.approx(540e6, rel=0.02)
    assert len(model.layers) == 48
    assert model.layers[0].experts == 128


GEMMA4: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention"],
        "vocab_size": 262144,
        "max_position_embeddings": 131072,
    },
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "patch_size": 16,
        "position_embedding_size": 10240,
    },
    "audio_config": {"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8},
}


def test_both_towers_of_gemma_4_have_the_sizes_of_transformers() -> None:
    """The page of the fresh set gives 0.614 GB of audio in bf16; towers are whole on each rank."""
    model = understand(Settings(GEMMA4, "config.json"), "google/gemma-4-E2B-it")
    audio, vision = (
        [one for one in model.others if one.name.startswith(f"{kind}.")]
        for kind in ("audio", "vision")
    )
    assert sum(one.bytes for one in audio) == pytest.approx(0.614e9, rel=1e-3)
    layers = 16 * (4 * 768**2 + 3 * 768 * 3072 + 4 * 768 + 2 * 64)
    beside = 768 * (3 * 16**2 + 2 * 10240 + 1536)
    assert sum(one.elements for one in vision) == layers + beside
    assert {one.shard for one in (*audio, *vision)} == {"replicated"}


@pytest.mark.parametrize(
    ("beside", "stored", "version", "heads"),
    [
        (256, ("lm_head.weight",), "0.32.0", 1),
        (256, ("language_model.lm_head.weight",), "0.30.0", 1),
        # Tied by the configuration alone, tied again after loading, and nothing to keep.
        (256, ("lm_head.weight",), "0.26.0", 0),
        (0, ("lm_head.weight",), "0.32.0", 0),
        (256, ("model.embed_tokens.weight",), "0.32.0", 0),
    ],
)
def test_a_tied_model_keeps_a_stored_head_where_layers_have_embeddings(
    beside: int, stored: tuple[str, ...], version: str, heads: int
) -> None:
    """vLLM 0.32 ties a head again only if it finds one embedding, and Gemma 4 E2B has two."""
    text = {**GEMMA4["text_config"], "hidden_size_per_layer_input": beside}
    config = {**GEMMA4, "text_config": text}
    plain, kept = (
        understand(Settings(config, "c"), "google/gemma-4-E2B-it", checkpoint=one)
        for one in (None, Checkpoint(frozenset(stored), {}, 0))
    )
    for split in (Split(1), Split(2), Split(1, 2)):
        apart = [
            many - few
            for many, few in zip(
                weights(kept, split, version), weights(plain, split, version), strict=True
            )
        ]
        # The class builds its head on every stage.
        assert apart == [heads * 262144 * 1536 * 2 // split.tensor] * split.pipeline


# zai-org/glm-4-9b-chat's configuration, as its own code reads it.
CHATGLM = {
    "architectures": ["ChatGLMModel"],
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "ffn_hidden_size": 13696,
    "hidden_size": 4096,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_layers": 40,
    "padded_vocab_size": 151552,
    "seq_length": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 151552,
}


def test_glm_4_9b_is_read_under_the_names_of_its_own_code() -> None:
    """9.4 billion of its card; the same sizes as GlmForCausalLM have the same layers."""
    model = understand(Settings(CHATGLM, "config.json"), "zai-org/glm-4-9b-chat")
    assert parameters(model) == 9_399_951_360
    assert (model.max_context, model.layers[0].kv.heads, model.layers[0].kv.head_size) == (
        131072,
        2,
        128,
    )
    renamed = {
        "architectures": ["GlmForCausalLM"],
        "attention_bias": True,
        "hidden_size": 4096,
        "intermediate_size": 13696,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 151552,
        "max_position_embeddings": 131072,
        "partial_rotary_factor": 0.5,
    }
    other = understand(Settings(renamed, "config.json"), "zai-org/glm-4-9b-chat-hf")
    assert (other.layers, other.buffers) == (model.layers, model.buffers)
    # ChatGLM's class builds embedding and head on every stage.
    ends = 151552 * 4096 * 2
    first, last = weights(model, Split(1, 2))
    assert [first - weights(other, Split(1, 2))[0], last - weights(other, Split(1, 2))[1]] == [
        pytest.approx(ends, rel=1e-3)
    ] * 2


def test_a_chatglm_that_sees_is_refused_as_by_the_engine() -> None:
    config = {**CHATGLM, "vision_config": {"hidden_size": 1792}}
    with pytest.raises(PlanError, match="takes no model with a vision_config"):
        understand(Settings(config, "config.json"), "zai-org/glm-4v-9b")


def test_minimax_m3_as_transformers_5_writes_it_has_what_the_engine_takes_for_it() -> None:
    """The library names layers by other keys; vLLM 0.32's class has the published ones itself."""
    published = json.loads((CONFIGS / "MiniMaxAI--MiniMax-M3_config.json").read_text("utf-8"))
    theirs = ("moe_layer_freq", "sparse_attention_config", "n_shared_experts", "use_routing_bias")
    text = {key: one for key, one in published.items() if key not in theirs}
    text |= {
        "model_type": "minimax_m3_vl_text",
        "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57,
        "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57,
        "index_n_heads": 4,
        "index_head_dim": 128,
    }
    config = {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "text_config": text,
    }
    model = understand(Settings(config, "config.json"), "a/model")
    assert model.layers == configuration("MiniMaxAI--MiniMax-M3").layers


@pytest.mark.parametrize(
    ("architecture", "changed", "named"),
    [
        ("DeepseekV4ForCausalLM", {"compress_rates": {}}, "compress_ratios"),
        ("MiMoV2FlashForCausalLM", {"v_head_dim": 128}, "hybrid_layer_pattern"),
        ("KimiLinearForCausalLM", {"linear_num_heads": 32}, "linear_attn_config"),
        ("Step3p5ForCausalLM", {"num_sliding_attention_heads": 96}, "num_attention_groups"),
    ],
)
def test_what_only_transformers_reads_is_refused_with_the_key_that_the_engine_reads(
    architecture: str, changed: dict[str, object], named: str
) -> None:
    """vLLM 0.32's classes read the published keys alone, or take those of another model."""
    config = {
        "architectures": [architecture],
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 128000,
        "layer_types": ["full_attention"] * 4,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3,
        **changed,
    }
    with pytest.raises(PlanError, match=f"{named}.*published with"):
        understand(Settings(config, "config.json"), "a/model")


# Qwen/Qwen2-Audio-7B-Instruct's configuration leaves most of its text part to the library.
QWEN2_AUDIO = {
    "architectures": ["Qwen2AudioForConditionalGeneration"],
    "model_type": "qwen2_audio",
    "audio_config": {"model_type": "qwen2_audio_encoder", "d_model": 1280, "encoder_layers": 32},
    "text_config": {
        "model_type": "qwen2",
        "intermediate_size": 11008,
        "max_position_embeddings": 8192,
        "sliding_window": 32768,
        "vocab_size": 156032,
    },
}
# A configuration of Voxtral-Small-24B as the library writes it.
VOXTRAL = {
    "architectures": ["VoxtralForConditionalGeneration"],
    "model_type": "voxtral",
    "audio_config": {
        "model_type": "voxtral_encoder",
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "max_source_positions": 1500,
        "num_attention_heads": 20,
        "num_hidden_layers": 32,
        "num_mel_bins": 128,
    },
    "text_config": {
        "model_type": "llama",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "vocab_size": 131072,
    },
}
# What Whisper-large-v3's encoder has.
WHISPER = 636_968_960


@pytest.mark.parametrize(
    ("config", "joint", "card"),
    [(QWEN2_AUDIO, 1280 * 4096 + 4096, 8.4e9), (VOXTRAL, 2 * 5120**2, 24.3e9)],
)
def test_whispers_encoder_is_counted_beside_its_decoder(
    config: dict[str, object], joint: int, card: float
) -> None:
    model = understand(Settings(config, "config.json"), "a/model")
    assert model.assumed == ()
    assert parameters(model) == pytest.approx(card, rel=2e-3)
    tower = sum(one.elements for one in model.others)
    # vLLM's own encoder has a bias for keys, which Whisper has not.
    keys = 32 * 1280 if config is VOXTRAL else 0
    assert tower == WHISPER + joint + keys
    whole, halved = (sum(share(one, Split(tensor)) for one in model.others) for tensor in (1, 2))
    # Of Qwen2-Audio transformers' module is whole on each rank; of Voxtral layers are divided.
    layers = 32 * (4 * 1280**2 + 2 * 1280 * 5120) * 2
    assert whole - halved == pytest.approx(layers / 2 if config is VOXTRAL else 0, rel=1e-3)


def test_an_audio_tower_that_cannot_be_counted_is_said() -> None:
    """As of Ultravox or Granite Speech, known only by the type of their decoder."""
    config = {
        "architectures": ["UltravoxModel"],
        "audio_config": {"model_type": "whisper", "d_model": 1280},
        "text_config": GEMMA4["text_config"],
    }
    assert UNHEARD in understand(Settings(config, "config.json"), "a/model").assumed
