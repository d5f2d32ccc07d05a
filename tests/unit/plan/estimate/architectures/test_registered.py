"""Every architecture that vLLM registers: put together here, or estimated with a word of warning.

tests/data/README.md says where the names, the defaults and the numbers of parameters are from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families import registry
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.apart import LATENT_BLOCK, _descriptors
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.limits import facts, refusals
from vllm_ansible.plan.estimate.layouts.request import Request as Question
from vllm_ansible.plan.estimate.memory.blocks import bytes_per_sequence, groups
from vllm_ansible.plan.estimate.memory.budget import budget
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.kernels import Kernels
from vllm_ansible.plan.estimate.memory.kv_cache import kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.problem import PlanError

ROOT = Path(__file__).parents[5]
PUBLIC = ROOT / "tests/data/public"
VLLM: dict[str, Any] = json.loads((PUBLIC / "vllm-architectures.json").read_text("utf-8"))
PARAMETERS: dict[str, Any] = json.loads((PUBLIC / "parameters.json").read_text("utf-8"))
KINDS = tuple(kind for kind in VLLM if kind not in ("vllm", "how", "defaults"))
KNOWN = {*registry.DECODERS, *registry.TOWERS, *registry.DRAFTS}
TOTAL = 80 * 2**30
# What a configuration says that names nothing in an own way.
USUAL = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}


def estimated(directory: Path, architecture: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Return what is said of a model of which there are a configuration and an index."""
    given = {"architectures": [architecture], **config}
    (directory / "config.json").write_text(json.dumps(given), encoding="utf-8")
    names = [f"model.layers.{layer}.mlp.weight" for layer in range(5)]
    index = {"metadata": {"total_size": TOTAL}, "weight_map": dict.fromkeys(names, "a")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    model = load(str(directory))
    assert budget(model, Split(1), 200 * 2**30).stages[0].weights > 0
    return model.assumed


def test_the_names_are_those_of_the_locked_release() -> None:
    """A new lock asks for new names."""
    lock = (ROOT / "requirements/engine-cuda.txt").read_text(encoding="utf-8")
    found = re.search(r"^vllm==([0-9.]+)", lock, re.M)
    assert found and found[1] == VLLM["vllm"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_registered_architecture_is_known_or_estimated_with_a_warning(
    kind: str, tmp_path: Path
) -> None:
    for architecture in VLLM[kind]:
        if architecture in registry.TOWERS:
            assert registry.builder(registry.TOWERS[architecture][0])
        elif architecture in KNOWN:
            assert registry.builder(architecture)
        else:
            config = VLLM["defaults"].get(architecture, USUAL)
            said = estimated(tmp_path, architecture, config)
            assert any("is not known" in one or "is taken for" in one for one in said), architecture


def test_what_is_known_is_registered_by_some_release() -> None:
    """Names that 0.32 has not: those of checkpoints, of their text part, or of older releases."""
    registered = {name for kind in KINDS for name in VLLM[kind]}
    assert len(KNOWN & registered) >= 115
    assert len([name for name in VLLM["text"] if name in KNOWN]) >= 75


# Rows that vLLM's classes add: of Inkling's 64 routers to 264, of Qwen4-Exp's 80 mixings to 336. In
# transformers LongCat-Flash's corrections are no parameters, and first matrices stand for the 256
# experts that do nothing, too, which no checkpoint has.
PADDED = {
    "inkling": 64 * 6 * 6144,
    "qwen4_exp": 80 * 12 * 8192,
    "longcat_flash": 28 * (768 - 256 * 2 * 2048 * 6144),
}


# LongCat-Flash-Lite's published sizes.
LITE = {
    "architectures": ["LongcatFlashNgramForCausalLM"],
    "vocab_size": 131_072,
    "hidden_size": 3072,
    "ffn_hidden_size": 6144,
    "expert_ffn_hidden_size": 1024,
    "num_layers": 14,
    "num_hidden_layers": 28,
    "num_attention_heads": 32,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "zero_expert_num": 128,
    "moe_topk": 12,
    "num_nextn_predict_layers": 1,
}
NGRAMS = {"ngram_vocab_size_ratio": 78, "emb_neighbor_num": 4, "emb_split_num": 4}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_family_has_the_parameters_of_its_reference(name: str) -> None:
    """As transformers builds it without weights: of Hy3 295 billion, of Seed-OSS 36.2."""
    kept = PARAMETERS[name]
    model = understand(Settings(kept["config"], name), name)
    elements = sum(one.elements for one in model.tensors()) - PADDED.get(name, 0)
    assert elements == pytest.approx(kept["parameters"], rel=2e-6)


@pytest.mark.parametrize(
    ("name", "changes", "bytes_of_a_token", "kinds"),
    [
        ("hy_v3", {}, 80 * 2 * 8 * 128 * 2, {"gqa"}),
        ("laguna", {"gating": "per-element"}, 40 * 2 * 8 * 128 * 2, {"gqa"}),
        ("afmoe", {}, 32 * 2 * 16 * 128 * 2, {"gqa", "sliding"}),
        ("lfm2_moe", {}, 6 * 2 * 8 * 64 * 2, {"gqa", "linear"}),
        ("muse_glimmer", {}, 52 * 2 * 2 * 128 * 2, {"gqa", "sliding"}),
        ("glm5_next", {}, 11 * 512 * 2, {"mla", "linear"}),
        ("hy_v4", {}, 34 * 576 * 2, {"mla"}),
        ("bailing_hybrid", {}, 7 * 576 * 2, {"mla", "linear"}),
        ("inkling", {}, (55 * 16 + 11 * 8) * 2 * 128 * 2, {"gqa", "sliding"}),
        ("qwen4_exp", {}, 10 * 2 * 2 * 256 * 2, {"gqa", "linear"}),
        ("cohere", {}, 64 * 2 * 8 * 128 * 2, {"gqa"}),
        ("cohere2", {}, 32 * 2 * 8 * 128 * 2, {"gqa", "sliding"}),
        ("falcon_h1", {}, 72 * 2 * 4 * 128 * 2, {"gqa"}),
    ],
)
def test_what_a_token_leaves_behind(
    name: str, changes: dict[str, Any], bytes_of_a_token: int, kinds: set[str]
) -> None:
    model = understand(Settings({**PARAMETERS[name]["config"], **changes}, name), name)
    kept = [layer.kv for layer in model.layers]
    assert {one.kind for one in kept} == kinds
    sizes = [
        one.heads * (one.head_size + one.value_size) * 2 for one in kept if one.kind != "linear"
    ]
    assert sum(sizes) == bytes_of_a_token


def test_a_convolution_keeps_the_last_inputs_alone() -> None:
    model = understand(Settings(PARAMETERS["lfm2_moe"]["config"], "lfm2"), "lfm2")
    states = {one.kv.state_bytes for one in model.layers if one.kv.kind == "linear"}
    assert states == {2048 * 2 * 2}


def test_an_indexer_of_pools_keeps_a_sixteenth_of_a_key_for_a_token() -> None:
    """132 bytes for 16 tokens (vLLM 0.32's `Glm5NextIndexerCache`), beside 512 latent elements."""
    model = understand(Settings(PARAMETERS["glm5_next"]["config"], "glm"), "glm")
    assert {one.kv.extra_bytes_per_token for one in model.layers if one.kv.kind == "mla"} == {8.25}
    (each,) = kv_bytes_per_token(model, Split(8))
    assert each == round(11 * (512 * 2 + 8.25))
    # Keys of 128 elements for 64 heads in fp32, and three convolutions over the last 3 inputs.
    states = {one.kv.state_bytes for one in model.layers if one.kv.kind == "linear"}
    assert states == {64 * 128 * 128 * 4 + 3 * 64 * 128 * 3 * 2}


@pytest.mark.parametrize(("tensor", "tokens"), [(1, 4352), (4, 1152), (8, 640)])
def test_pages_of_pools_hold_a_recurrent_state(tensor: int, tokens: int) -> None:
    """vLLM 0.31.1 prints 640 tokens of eight ranks; keys of a pool lie beside, 32 to a page."""
    config = {**PARAMETERS["glm5_next"]["config"], "index_kpool": 4}
    model = understand(Settings(config, "glm"), "glm")
    request = Request(262144, block_size=64, prefix_caching=False)
    *states, whole = groups(model, Split(tensor), request)
    assert (whole.block, whole.bytes_per_block) == (tokens, (11 * tokens * (1024 + 132 / 4),))
    # The newest tokens, which fill no pool yet, have a block of their own.
    assert whole.per_sequence == -(-262144 // tokens) + 1
    assert [one.per_sequence for one in states] == [1] * 4


def test_attention_of_glm5_next_is_never_quantized() -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config = PARAMETERS["glm5_next"]["config"]
    plain, stored = (
        understand(Settings({**config, **more}, "glm"), "glm")
        for more in ({}, {"quantization_config": block})
    )
    one, other = (
        {each.name: each for each in model.layers[3].tensors} for model in (plain, stored)
    )
    assert {one[name] == each for name, each in other.items() if "self_attn" in name} == {True}
    assert other["mlp.experts.w13.weight"].bytes * 2 == one["mlp.experts.w13.weight"].bytes


def test_muse_glimmer_sees_a_window_in_three_of_four_layers() -> None:
    config = PARAMETERS["muse_glimmer"]["config"]
    text = {key: one for key, one in config["text_config"].items() if key != "layer_types"}
    told = understand(Settings(config, "m"), "m")
    usual = understand(Settings({**config, "text_config": text}, "m"), "m")
    assert [one.kv for one in told.layers] == [one.kv for one in usual.layers]
    assert [one.kv.window for one in told.layers[:4]] == [2048, 2048, 2048, None]
    # The tower's blocks are whole on each rank, its attention is divided.
    whole, halved = (weights(told, Split(tensor))[0] for tensor in (1, 2))
    plain = 50 * 2 * 1536 * 8960 * 2
    assert halved > whole / 2 + 0.49 * plain


def test_phi_4_multimodal_is_phi_4_mini_and_two_encoders() -> None:
    """3.84 billion of the decoder (its card), 0.41 and 0.47 of the encoders; 5.57 with adapters."""
    shape = {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "vocab_size": 200064,
        "tie_word_embeddings": True,
    }
    whole, decoder = (
        understand(Settings({"architectures": [name], **shape}, name), name)
        for name in ("Phi4MMForCausalLM", "Phi3ForCausalLM")
    )
    assert whole.layers == decoder.layers
    counts = [sum(one.elements for one in model.tensors()) for model in (decoder, whole)]
    assert counts[0] == pytest.approx(3.84e9, rel=0.003)
    assert counts[1] - counts[0] == pytest.approx(0.878e9, rel=0.002)
    assert any("adapters" in one for one in whole.assumed)


def test_hy4_shares_the_choice_of_one_layer_in_four() -> None:
    """A key of 132 bytes in layers 0, 1, 5 and so on; 32 sinks and a gate as wide as the values."""
    model = understand(Settings(PARAMETERS["hy_v4"]["config"], "hy4"), "hy4")
    chooses = [one.index for one in model.layers if one.kv.extra_bytes_per_token]
    assert chooses == [0, *range(1, 34, 4)]
    assert kv_bytes_per_token(model, Split(8)) == (34 * 576 * 2 + 10 * 132,)
    sizes = {one.name: (one.elements, one.bytes) for one in model.layers[0].tensors}
    assert sizes["self_attn.sinks"] == (32, 32 * 4)
    assert sizes["self_attn.g_proj.weight"][0] == 2816 * 32 * 256


# inclusionAI/Ling-2.6-flash's configuration, as its quantized copies on the hub have it.
LING = {
    **{"architectures": ["BailingMoeV2_5ForCausalLM"], "vocab_size": 157184, "hidden_size": 4096},
    **{"intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 32},
    **{"moe_shared_expert_intermediate_size": 1024, "num_attention_heads": 32, "head_dim": 128},
    **{"num_key_value_heads": 32, "num_experts": 256, "num_shared_experts": 1, "q_lora_rank": 1536},
    **{"num_experts_per_tok": 8, "first_k_dense_replace": 1, "kv_lora_rank": 512},
    **{"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "layer_group_size": 8},
    **{"max_position_embeddings": 131072, "use_qk_norm": True, "partial_rotary_factor": 0.5},
    **{"group_norm_size": 4, "moe_router_enable_expert_bias": True, "num_nextn_predict_layers": 1},
}


def test_ling_2_6_has_its_published_size_and_a_state_in_seven_layers_of_eight() -> None:
    """104 billion of its card, 107 on the hub with the layer that proposes tokens."""
    model = understand(Settings(LING, "ling"), "ling")
    counts = sum(one.elements for one in model.tensors())
    assert counts == pytest.approx(104e9, rel=0.005)
    assert [one.kv.kind for one in model.layers] == (["linear"] * 7 + ["mla"]) * 4
    assert kv_bytes_per_token(model, Split(4)) == (4 * 576 * 2,)
    # The state is of the model's precision, of Ling 3.0 of single.
    assert model.layers[0].kv.state_bytes == 32 * 128 * 128 * 2


def test_ling_2_5_keeps_what_was_published_of_a_token() -> None:
    """11.2 KiB for 10 layers of latent attention among 80 (its page in an overview of models)."""
    model = understand(Settings({**LING, "num_hidden_layers": 80}, "ling"), "ling")
    assert kv_bytes_per_token(model, Split(8)) == (round(11.25 * 1024),)


def test_ling_3_attends_in_the_layers_that_are_left_over() -> None:
    config = {**PARAMETERS["bailing_hybrid"]["config"], "num_hidden_layers": 44}
    model = understand(Settings(config, "ling"), "ling")
    kinds = [one.kv.kind for one in model.layers]
    assert kinds[36:] == ["linear"] * 5 + ["mla"] * 3


@pytest.mark.parametrize(("tensor", "block"), [(1, 1_441_792), (8, 180_224)])
@pytest.mark.parametrize(("length", "blocks"), [(8192, 15_115), (131_072, 33_969)])
def test_inkling_takes_the_blocks_that_vllm_deals(
    tensor: int, block: int, length: int, blocks: int
) -> None:
    """Twelve groups of eleven layers, by 0.32's own `get_kv_cache_groups` over the same caches."""
    model = understand(Settings(PARAMETERS["inkling"]["config"], "inkling"), "inkling")
    found = groups(model, Split(tensor), Request(length))
    assert len(found) == 12
    assert {one.bytes_per_block for one in found} == {(block,)}
    assert sorted({one.block for one in found}) == [4, 16, 32]
    assert sum(one.per_sequence for one in found) == blocks


QWEN4 = PARAMETERS["qwen4_exp"]["config"]
QWEN3_MOE: dict[str, Any] = json.loads(
    (PUBLIC / "configs" / "Qwen--Qwen3-30B-A3B_config.json").read_text("utf-8")
)
NEMOTRON = json.loads(
    (PUBLIC / "configs" / "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16_config.json").read_text()
)
RENAMED = {"mamba": "linear_attention", "attention": "full_attention"}
NEMOTRON_WORDS = [RENAMED.get(one, one) for one in NEMOTRON["layers_block_type"]]
TOWER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
INTERN = {"architectures": ["InternVLForConditionalGeneration"], "text_config": QWEN3_MOE}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (QWEN4, {"layer_types": [*["linear_attention"] * 3, "indexed_attention"] * 10}),
        (QWEN4, {"layer_types": [*["linear_attention"] * 3, "qwen_sparse_attention"] * 10}),
        (NEMOTRON, {"layers_block_type": NEMOTRON_WORDS}),
        (QWEN3_MOE, {"num_experts": None, "num_local_experts": QWEN3_MOE["num_experts"]}),
        (
            {**INTERN, "vision_config": {**TOWER, "patch_size": 16}},
            {"vision_config": {**TOWER, "patch_size": [16, 16]}},
        ),
    ],
    ids=["kinds", "earlier kinds", "blocks", "experts", "sides"],
)
def test_a_configuration_in_the_words_of_transformers_5_is_the_same_model(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    model = understand(Settings(before, "m"), "m")
    assert understand(Settings({**before, **after}, "m"), "m") == model


def test_qwen4_takes_the_bytes_that_vllm_deals() -> None:
    """134 blocks of 21,795,840 bytes there, with pages of their own for keys under way."""
    model = understand(Settings(PARAMETERS["qwen4_exp"]["config"], "q"), "q")
    (needed,) = bytes_per_sequence(groups(model, Split(1), Request(131_072)))
    assert needed == pytest.approx(134 * 21_795_840, rel=0.025)
    assert any("153 GiB of n-grams are in host memory" in one for one in model.assumed)
    # Tables of FP8 have a byte for each of these two.
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    config = {**PARAMETERS["qwen4_exp"]["config"], "quantization_config": fp8}
    quantized = understand(Settings(config, "q"), "q")
    assert any("up to 153 GiB of n-grams" in one for one in quantized.assumed)
    assert not any("up to" in one for one in model.assumed)


@pytest.mark.parametrize(
    ("name", "tensor", "length", "dealt"),
    [
        # 4 groups of 8 layers: 12,035 blocks of 524,288 bytes for 131,072 tokens.
        ("cohere2", 1, 8192, 1_075_314_688),
        ("cohere2", 2, 131_072, 3_154_903_040),
        # Pages of 1,040 tokens, which a state fills: 129 blocks of 153,354,240 bytes as dealt, and
        # one for the state inside the prompt that `MambaMixer2.get_kv_cache_spec` asks for, which
        # was not rendered.
        ("falcon_h1", 1, 8192, 1_686_896_640),
        ("falcon_h1", 1, 131_072, 19_936_051_200),
        ("falcon_h1", 2, 131_072, 9_968_025_600),
        # 56 latent caches in 28 layers, whole on each rank.
        ("longcat_flash", 1, 8192, 528_482_304),
        ("longcat_flash", 8, 131_072, 8_455_716_864),
    ],
)
def test_a_sequence_takes_the_bytes_that_vllm_deals(
    name: str, tensor: int, length: int, dealt: int
) -> None:
    """By 0.32's own `get_kv_cache_groups` over the caches that its class of the model has."""
    model = understand(Settings(PARAMETERS[name]["config"], name), name)
    assert bytes_per_sequence(groups(model, Split(tensor), Request(length))) == (dealt,)


def test_command_a_sees_a_window_in_three_of_four_layers() -> None:
    """The token itself beside the 4,096 before it; all stages hold the embedding, which is tied."""
    model = understand(Settings(PARAMETERS["cohere2"]["config"], "c"), "c")
    assert [one.kv.window for one in model.layers[:5]] == [4097, 4097, 4097, None, 4097]
    large = {"hidden_size": 12288, "intermediate_size": 36864, "num_hidden_layers": 64}
    large |= {"num_attention_heads": 96, "head_dim": 128}
    config = {**PARAMETERS["cohere2"]["config"], **large}
    command_a = understand(Settings(config, "c"), "c")
    # 111 billion of Command A's card.
    assert sum(one.elements for one in command_a.tensors()) == pytest.approx(111e9, rel=0.001)
    first, last = weights(command_a, Split(1, 2))
    assert abs(first - last) == pytest.approx(0, abs=2**20)
    # Command R+ takes its length from `model_max_length`.
    plus = understand(Settings(PARAMETERS["cohere"]["config"], "c"), "c")
    assert plus.max_context == 131_072
    assert {one.kv.window for one in plus.layers} == {None}


def test_command_a_vision_has_a_tower_of_about_its_size() -> None:
    """SigLIP 2 So400m by its sizes; Command A Vision's own configuration was not read."""
    whole = {
        "architectures": ["Cohere2VisionForConditionalGeneration"],
        "text_config": PARAMETERS["cohere2"]["config"],
        "vision_config": {
            **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
            **{"num_attention_heads": 16, "patch_size": 16},
        },
    }
    model = understand(Settings(whole, "c"), "c")
    assert sum(one.elements for one in model.others) == pytest.approx(412e6, rel=0.02)
    assert any("an estimate" in one for one in model.assumed)
    assert [one.kv.window for one in model.layers[:4]] == [4097, 4097, 4097, None]


def test_falcon_keeps_a_state_beside_keys_in_each_layer() -> None:
    """(4,096 + 2 x 2 x 256) x 3 of the convolution, and 32 matrices of 128 x 256, in 16 bits."""
    model = understand(Settings(PARAMETERS["falcon_h1"]["config"], "f"), "f")
    states = {one.kv.beside.state_bytes for one in model.layers if one.kv.beside}
    assert states == {(4096 + 1024) * 3 * 2 + 32 * 128 * 256 * 2}
    # Graphs are captured for no more sequences than there are blocks for their states.
    full = budget(model, Split(1), 80 * 2**30, max_model_len=1024, max_num_seqs=1024)
    assert "captured only with max_num_seqs of at most" in full.reasons[-1]
    assert kv_bytes_per_token(model, Split(2)) == (72 * 2 * 2 * 128 * 2,)
    small = {**PARAMETERS["falcon_h1"]["config"], "mamba_n_groups": 1}
    one = understand(Settings(small, "f"), "f")
    # One group is whole on both ranks: keys and queries of the state, and their convolution.
    plain = Kernels("cpu")  # Without the rounding of an accelerator's allocator.
    whole, halved = (weights(one, Split(tensor), None, plain)[0] for tensor in (1, 2))
    mixed = 72 * 2 * 256 * (5120 + 5) * 2
    rest = 72 * 2 * 5120 * 2 + 5120 * 2 + 262144 * 128 * 2
    assert 2 * halved - whole == mixed + rest


def test_longcat_looks_up_ngrams() -> None:
    """Flash-Lite: 68.5 billion by its makers, 31.4 of them in twelve tables dealt over ranks."""
    plain = understand(Settings(LITE, "l"), "l")
    model = understand(Settings({**LITE, **NGRAMS}, "l"), "l")
    assert sum(one.elements for one in model.tensors()) == pytest.approx(68.5e9, rel=2e-3)
    tables = 12 * 78 * 131_072 + 144 + 48  # of 1 to 23 rows more each, whole blocks of 64 together
    more = [weights(model, Split(t))[0] - weights(plain, Split(t))[0] for t in (1, 8)]
    projected = 12 * 256 * 3072 * 2
    assert more == pytest.approx([projected + tables * 512, projected + tables * 64], abs=2**21)
    assert model.next_layers == 0


def test_longcat_chooses_among_experts_that_do_nothing() -> None:
    """Twelve of 768, of which 512 multiply: 8 a token, 27 billion active in its card's mean."""
    model = understand(Settings(PARAMETERS["longcat_flash"]["config"], "l"), "l")
    (layer, *_), count = model.layers, len(model.layers)
    assert (count, layer.experts, layer.experts_per_token, layer.sums) == (28, 512, 8, 5)
    assert sum(one.elements for one in model.tensors()) == pytest.approx(560.7e9, rel=1e-4)
    routed = sum(one.elements for one in layer.tensors if one.role == "experts")
    rest = sum(one.elements for one in model.tensors() if one.role != "experts")
    rest -= model.embedding[0].elements
    assert rest + count * routed * 8 / 512 == pytest.approx(27e9, rel=0.01)
    # A prompt is moved in blocks of both caches of a layer.
    asked = Question(model, machines("2x8 H200"), input_tokens=1024)
    assert _descriptors(asked) == 56 * 1024 // LATENT_BLOCK
    assert kv_bytes_per_token(model, Split(8)) == (56 * 576 * 2,)
    # Later configurations count the attentions as layers.
    later = {**PARAMETERS["longcat_flash"]["config"], "num_hidden_layers": 56}
    assert len(understand(Settings(later, "l"), "l").layers) == 28


# stepfun-ai/step3: sizes of vLLM 0.32's `Step3TextConfig`. Its default inner size of the tower is
# not that of a tower of 5 billion; 15,360 is EVA-02-CLIP-E's, as wide and as deep but for a layer.
STEP3 = {
    "architectures": ["Step3VLForConditionalGeneration"],
    "text_config": {
        **{"model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432},
        **{"num_attention_heads": 64, "num_attention_groups": 1, "num_hidden_layers": 61},
        **{"vocab_size": 128815, "moe_intermediate_size": 5120, "moe_num_experts": 48},
        **{"moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048, "head_dim": 256},
        **{"max_seq_len": 65536, "moe_layers_enum": ",".join(map(str, range(4, 60)))},
    },
    "vision_config": {
        **{"hidden_size": 1792, "intermediate_size": 15360, "output_hidden_size": 4096},
        **{"num_hidden_layers": 63, "num_attention_heads": 16, "image_size": 728},
        **{"patch_size": 14, "num_channels": 3},
    },
}


def test_step3_has_its_published_size_and_one_head_of_keys() -> None:
    """321 billion of its card, 316 of them language; 512 numbers a token and layer on each rank."""
    model = understand(Settings(STEP3, "s"), "s")
    tower = sum(one.elements for one in model.others)
    assert sum(one.elements for one in model.tensors()) - tower == pytest.approx(316e9, rel=1e-3)
    assert tower == pytest.approx(5e9, rel=0.07)
    assert not model.assumed
    assert [one.experts for one in model.layers[:5]] == [0, 0, 0, 0, 48]
    assert model.max_context == 65536
    for tensor in (1, 8):
        assert kv_bytes_per_token(model, Split(tensor)) == (61 * 2 * 256 * 2,)
    # 61 layers in one group, by 0.32's own `get_kv_cache_groups`.
    dealt = bytes_per_sequence(groups(model, Split(8), Request(8192)))
    assert dealt == (511_705_088,)
    blind = {key: one for key, one in STEP3.items() if key != "vision_config"}
    assert (
        understand(Settings(blind, "s"), "s").assumed[0].startswith("the configuration describes")
    )


def test_inkling_sees_and_hears_by_little() -> None:
    """Its audio table is whole; what sees is 60 million of 947 billion."""
    text = PARAMETERS["inkling"]["config"]
    whole = {
        "architectures": ["InklingForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"patch_size": 40, "temporal_patch_size": 2, "n_channels": 3},
        "audio_config": {"n_mel_bins": 80, "mel_vocab_size": 256},
    }
    model = understand(Settings(whole, "inkling"), "inkling")
    sizes = {one.name: one.elements for one in model.others}
    assert sizes["audio.encoder"] == 80 * 256 * 6144 + 6144
    assert 58e6 < sizes["vision.linear"] < 61e6
    for towers in ({}, {"vision_config": None, "audio_config": {"n_mel_bins": 80}}):
        plain = understand(Settings({**whole, "vision_config": None, **towers}, "i"), "i")
        assert plain.assumed == ("the configuration describes no vision tower, none is counted",)
    # Each rank has the whole embedding, and half of the head.
    (table, _), (_, head) = model.embedding, model.head
    assert (table.shard, head.shard) == ("replicated", "vocab")


# Heads of Falcon-H1-3B, of which ten of attention can be divided by ten, and 32 of the mixer not.
FALCON_3B = {
    **PARAMETERS["falcon_h1"]["config"],
    **{"num_attention_heads": 10, "num_key_value_heads": 2, "mamba_n_heads": 32},
    "mamba_n_groups": 1,
}


@pytest.mark.parametrize(
    ("config", "tensor", "pipeline", "why"),
    [
        (LING, 8, 1, "TP that divides 4"),
        (PARAMETERS["inkling"]["config"], 16, 1, "TP that divides 8"),
        (PARAMETERS["qwen4_exp"]["config"], 2, 2, "no pipeline stages"),
        (PARAMETERS["falcon_h1"]["config"], 4, 1, "TP that divides 2"),
        (FALCON_3B, 10, 1, "TP that divides 32"),
    ],
)
def test_what_vllms_class_cannot_do_is_refused(
    config: dict[str, Any], tensor: int, pipeline: int, why: str
) -> None:
    """Each raises in 0.32: groups of norms, caches of convolutions, n-grams on later stages."""
    model = understand(Settings(config, "m"), "m")
    device = accelerator("H200")

    def said(tensor: int, pipeline: int) -> list[str]:
        candidate = Candidate(tensor, pipeline, 1, False)
        return list(refusals(facts(model), candidate, device))

    assert any(why in one for one in said(tensor, pipeline))
    assert not any(why in one for one in said(2, 1))


@pytest.mark.parametrize(
    ("name", "changes", "found"),
    [
        ("inkling", {"local_layer_ids": [[1]]}, "local_layer_ids"),
        ("qwen4_exp", {"ngram_size": 1}, "ngram_size"),
        ("hy_v4", {"indexer_types": ["full"]}, "indexer_types"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    name: str, changes: dict[str, Any], found: str
) -> None:
    config = {**PARAMETERS[name]["config"], **changes}
    with pytest.raises(PlanError, match=found):
        understand(Settings(config, name), name)


def test_latent_attention_that_does_not_say_what_it_rotates_is_refused() -> None:
    """0 is a size (GLM-5-Next); none at all is a key that is missing."""
    config = {key: one for key, one in LING.items() if key != "qk_rope_head_dim"}
    config |= {"architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 256}
    with pytest.raises(PlanError, match="qk_rope_head_dim"):
        understand(Settings(config, "d"), "d")
    model = understand(Settings({**config, "qk_rope_head_dim": 0}, "d"), "d")
    assert model.layers[0].kv.head_size == 512
