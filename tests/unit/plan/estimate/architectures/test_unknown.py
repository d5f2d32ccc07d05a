"""Models of which no code here knows the architecture, and families that newer ones belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.families.kept import caches
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.usual import usual
from vllm_ansible.plan.estimate.memory.budget import budget
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.problem import PlanError

GIB = 2**30
TOTAL = 8 * GIB
NEVER = {"architectures": ["NeverSeenForCausalLM"], "model_type": "never_seen"}


def indexed(directory: Path, make: Any, **changes: Any) -> Model:
    """Return a model of which there are a configuration and an index, of five layers."""
    values = make.config(**NEVER, **changes).values
    (directory / "config.json").write_text(json.dumps(values))
    names = [f"model.layers.{layer}.mlp.experts.weight" for layer in range(5)]
    names += ["model.embed_tokens.weight", "lm_head.weight"]
    index = {"metadata": {"total_size": TOTAL}, "weight_map": dict.fromkeys(names, "a.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return load(str(directory))


def test_an_index_gives_the_bytes_and_a_wide_band(tmp_path: Path, make: Any) -> None:
    """The fifth layer is one for speculation, which an engine does not load."""
    model = indexed(tmp_path, make)
    ends = 2 * 100 * 64 * 2
    assert model.bytes() == pytest.approx((TOTAL - ends) * 4 / 5 + ends)
    first = budget(model, Split(2), 80 * GIB).stages[0]
    (term,) = (one for one in first.terms if "not known" in one.name)
    assert (term.band.low, term.band.high) == (0.0, 0.2 * first.weights)
    assert first.weights == pytest.approx(model.bytes() / 2, rel=0.001)
    assert "NeverSeenForCausalLM is not known: its 8.0 GiB are the index's" in model.assumed[0]


def test_experts_of_an_index_are_spread_with_expert_parallelism(tmp_path: Path, make: Any) -> None:
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    model = indexed(tmp_path, make, **sizes)
    assert (model.layers[0].experts, model.layers[0].experts_per_token) == (8, 2)
    assert weights(model, Split(1, data=8, expert=True))[0] < weights(model, Split(1))[0] / 3


def test_without_an_index_the_advice_is_to_name_one(tmp_path: Path, make: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(make.config(**NEVER).values))
    with pytest.raises(PlanError, match="NeverSeenForCausalLM is not known") as refused:
        load(str(tmp_path))
    assert "index" in refused.value.problems[0].fix


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, ["gqa"] * 4),
        ({"layers_block_type": ["mamba", "attention", "moe", "mlp"]}, "linear gqa none none"),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8},
            "sliding gqa sliding gqa",
        ),
        ({"attn_type_list": [0, 0, 0, 1]}, "linear linear linear gqa"),
        (
            {"linear_attn_config": {"full_attn_layers": [4]}, "kv_lora_rank": 512},
            "linear linear linear mla",
        ),
        ({"attn_layer_period": 4, "attn_layer_offset": 2}, "linear linear gqa linear"),
    ],
)
def test_what_layers_keep_is_read_from_the_usual_keys(
    changes: dict[str, Any], kinds: Any, make: Any
) -> None:
    found = [one.kind for one in caches(make.config(**NEVER, **changes), 4)]
    assert found == (kinds.split() if isinstance(kinds, str) else kinds)


NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def test_nemotrons_layers_may_be_words(make: Any) -> None:
    letters = make(**NEMOTRON, hybrid_override_pattern="ME*-")
    words = make(**NEMOTRON, layers_block_type=["mamba", "moe", "attention", "mlp"])
    assert words.layers == letters.layers
    with pytest.raises(PlanError, match="layers_block_type or hybrid_override_pattern says 3 of 4"):
        make(**NEMOTRON, layers_block_type=["mamba", "moe", "attention"])


def test_phi_3_5_moe_has_its_published_number_of_parameters(make: Any) -> None:
    model = make(
        architectures=["PhiMoEForCausalLM"],
        hidden_size=4096,
        intermediate_size=6400,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_local_experts=16,
        num_experts_per_tok=2,
        vocab_size=32064,
        attention_bias=True,
    )
    assert sum(one.elements for one in model.tensors()) == pytest.approx(41.87e9, rel=0.001)


def test_mimo_is_qwen2_without_its_layers_for_speculation(make: Any) -> None:
    mimo = make(architectures=["MiMoForCausalLM"], num_nextn_predict_layers=1)
    assert mimo.layers == make(architectures=["Qwen2ForCausalLM"]).layers


def test_glm_4_5v_is_glm_4_5_with_a_tower_and_positions_of_images(make: Any) -> None:
    text = {
        **make.config(architectures=None, model_type="glm4v_moe_text").values,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
    }
    tower = {"hidden_size": 64, "depth": 2, "num_heads": 4, "intermediate_size": 128}
    plain = make(**{**text, "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe"})
    seeing = make(
        architectures=["Glm4vMoeForConditionalGeneration"],
        text_config=text,
        vision_config=tower,
    )
    assert seeing.layers == plain.layers
    assert seeing.others and "estimate" in seeing.assumed[0]
    assert seeing.buffers[0].bytes == 4 * plain.buffers[0].bytes


def test_chatglm_shares_keys_and_values_only_where_it_says_so(make: Any) -> None:
    groups = {"num_key_value_heads": None, "multi_query_group_num": 2}
    for said, heads in (
        ({"multi_query_attention": False}, 8),
        ({"multi_query_attention": True}, 2),
    ):
        config = usual(make.config(**NEVER, **groups, **said))
        assert [one.heads for one in caches(config, 2)] == [heads] * 2


def test_mamba_2_keeps_a_state_of_its_heads(make: Any) -> None:
    attends = dict.fromkeys(("num_attention_heads", "num_key_value_heads", "intermediate_size"))
    sizes = {"state_size": 16, "num_heads": 8, "head_dim": 16, "expand": 2}
    config = usual(make.config(**NEVER, **{**attends, **sizes}))
    (found,) = caches(config, 1)
    assert (found.kind, found.heads, found.state_bytes) == ("linear", 8, 8 * 16 * 16 * 4)


def test_the_last_layer_of_ernie_may_be_minus_one(make: Any) -> None:
    ernie = {
        **{"architectures": ["Ernie4_5_MoeForCausalLM"], "moe_intermediate_size": 64},
        **{"moe_num_experts": 8, "moe_k": 2, "moe_layer_start_index": 1},
    }
    last = make(**ernie, moe_layer_end_index=-1)
    assert last.layers == make(**ernie, moe_layer_end_index=3).layers == make(**ernie).layers
    assert [one.experts for one in last.layers] == [0, 8, 8, 8]


def test_windows_of_exaone_4_may_be_letters(make: Any) -> None:
    exaone = {"architectures": ["Exaone4ForCausalLM"], "sliding_window": 8}
    letters = make(**exaone, sliding_window_pattern="LLG")
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    assert letters.layers == make(**exaone, layer_types=kinds).layers
    with pytest.raises(PlanError, match="sliding_window_pattern is 'LLX'"):
        make(**exaone, sliding_window_pattern="LLX")
