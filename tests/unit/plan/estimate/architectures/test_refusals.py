"""What is no model's configuration is refused in one sentence; nothing is guessed silently."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from vllm_ansible.plan.estimate.architectures.config import Settings, parse
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.problem import PlanError

CONFIGS = Path(__file__).parents[4] / "data" / "public" / "configs"
NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
)


def one_sentence(error: PlanError) -> str:
    assert len(error.problems) == 1
    told = str(error)
    assert "\n" not in told and len(told) < 500
    return told


@pytest.mark.parametrize("name", NEEDED)
def test_a_configuration_without_a_key_names_it(name: str, make: Any) -> None:
    with pytest.raises(PlanError) as refused:
        make(**{name: None})
    assert name in one_sentence(refused.value)


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [0, -1, 1.5, "64", True, [64], {}, 2**40])
def test_a_value_that_is_no_size_is_named(name: str, value: object, make: Any) -> None:
    with pytest.raises(PlanError) as refused:
        make(**{name: value})
    assert name in one_sentence(refused.value)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("google--gemma-4-26B-A4B", {"layer_types": ["wrong"] * 99}, "layer_types has 'wrong'"),
        ("Qwen--Qwen3.5-35B-A3B", {"layer_types": ["wrong"] * 99}, "layer_types has 'wrong'"),
        ("Qwen--Qwen3-8B", {"sliding_window": 9, "layer_types": ["x"] * 99}, "has 'x', not one"),
        ("Qwen--Qwen3-8B", {"sliding_window": 9, "layer_types": ["x"]}, "names 1 layers of 36"),
        ("stepfun-ai--Step-3.5-Flash", {"layer_types": [7] * 99}, "layer_types has 7"),
        ("XiaomiMiMo--MiMo-V2-Flash", {"hybrid_layer_pattern": ["x"] * 99}, "pattern has 'x'"),
        ("XiaomiMiMo--MiMo-V2-Flash", {"moe_layer_freq": [-1] * 99}, "moe_layer_freq has -1"),
        ("MiniMaxAI--MiniMax-M3", {"moe_layer_freq": ["x"] * 99}, "moe_layer_freq has 'x'"),
        ("Qwen--Qwen3-30B-A3B", {"mlp_only_layers": ["x"]}, "mlp_only_layers has 'x'"),
        ("deepseek-ai--DeepSeek-V4.1-Flash", {"engram_layer_ids": ["x"]}, "ids has 'x'"),
        ("Qwen--Qwen3-8B", {"attention_bias": "false"}, "attention_bias is 'false', not true"),
        ("Qwen--Qwen3-8B", {"tie_word_embeddings": -1}, "tie_word_embeddings is -1, not true"),
        ("Qwen--Qwen3-8B", {"num_key_value_heads": 7}, "does not divide its 32 num_attention"),
        ("Qwen--Qwen3-8B", {"architectures": [["x"]]}, "architectures has"),
        ("deepseek-ai--DeepSeek-V3", {"topk_method": 7}, "topk_method is 7, not a word"),
        ("deepseek-ai--DeepSeek-V3", {"quantization_config": {"quant_method": -1}}, "method is -1"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(
    name: str, changes: dict[str, Any], said: str
) -> None:
    values = configurations()[f"{name}_config.json"]
    inner = values.get("text_config", {})
    section = inner if set(changes) & set(inner) else values
    changed = {**section, **changes}
    whole = {**values, "text_config": changed} if section is inner and inner else changed
    with pytest.raises(PlanError) as refused:
        understand(Settings(whole, name), name)
    assert said in one_sentence(refused.value)


@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("Qwen--Qwen3-8B", "", "max_position_embeddings"),
        ("MiniMaxAI--MiniMax-M3", "sparse_attention_config", "sparse_attention_freq"),
        ("Qwen--Qwen3-VL-30B-A3B-Instruct", "vision_config", "deepstack_visual_indexes"),
    ],
)
def test_a_whole_number_with_a_point_is_the_number(name: str, section: str, key: str) -> None:
    values = deepcopy(configurations()[f"{name}_config.json"])
    plain = understand(Settings(values, name), name)
    outer = values if section in values else values.get("text_config", {})
    inner = outer[section] if section else values
    value = inner[key]
    inner[key] = [float(one) for one in value] if isinstance(value, list) else float(value)
    assert understand(Settings(values, name), name) == plain


def test_heads_of_keys_that_latent_attention_does_not_have_refuse_nothing() -> None:
    values = configurations()["deepseek-ai--DeepSeek-V3_config.json"]
    plain = understand(Settings(values, "m"), "m")
    # The engine's latent attention does not read them (`DeepseekV2MLAAttention`).
    model = understand(Settings({**values, "num_key_value_heads": 7}, "m"), "m")
    assert model.layers == plain.layers


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"hidden_size": 64,', "[1, 2]", '"llama"', "null", "3", "\x00\x01", "[" * 100_000],
)
def test_text_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(PlanError) as refused:
        load(str(path))
    assert "config.json" in one_sentence(refused.value)


def test_ten_megabytes_of_nonsense_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{nonsense\x00" * 2**20)
    with pytest.raises(PlanError) as refused:
        load(str(path))
    assert "10.0 MiB" in one_sentence(refused.value)


@given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=9),
        lambda inner: (
            some.lists(inner, max_size=4)
            | some.dictionaries(
                some.sampled_from(
                    [
                        "architectures",
                        "text_config",
                        "vision_config",
                        "quantization_config",
                        "quant_method",
                        "layer_types",
                        "model_type",
                        "rope_scaling",
                        *NEEDED,
                    ]
                ),
                inner,
                max_size=6,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_understood_or_refused_in_one_sentence(value: object) -> None:
    try:
        understand(parse(json.dumps(value), "config.json"), "any")
    except PlanError as error:
        one_sentence(error)


@lru_cache
def configurations() -> dict[str, dict[str, Any]]:
    """Return every configuration beside the checkout, decoders of wrappers as their own."""
    found = {}
    for path in sorted(CONFIGS.glob("*_config.json")):
        if not path.name.endswith("_hf_quant_config.json"):
            found[path.name] = json.loads(path.read_text())
    return found


@settings(deadline=None, max_examples=400)
@given(some.data())
def test_a_changed_value_is_understood_or_refused_in_one_sentence(data: some.DataObject) -> None:
    name = data.draw(some.sampled_from(sorted(configurations())))
    values = dict(configurations()[name])
    inner = data.draw(some.sampled_from([None, "text_config", "vision_config"]))
    changed = values
    if inner in values:
        changed = values[inner] = dict(values[inner])
    key = data.draw(some.sampled_from(sorted(changed)))
    lists: list[Any] = [[], [1], [-1] * 3, ["x"] * 200, [None] * 200, [[]]]
    odd = [None, 0, -1, 1, 2, 7, 2.5, float("nan"), True, "x", "12", {}, {"a": 1}, 10**30, *lists]
    changed[key] = data.draw(some.sampled_from(odd))
    try:
        model = understand(Settings(values, name), name)
    except PlanError as error:
        one_sentence(error)
    else:
        assert model.bytes() > 0


def test_an_unknown_architecture_is_refused_with_what_is_missing(make: Any) -> None:
    with pytest.raises(PlanError) as refused:
        make(architectures=["NeverSeenForCausalLM"], model_type="never_seen")
    told = one_sentence(refused.value)
    assert "NeverSeenForCausalLM" in told and "safetensors" in told


def test_an_unknown_class_of_a_known_type_says_what_it_is_taken_for(make: Any) -> None:
    model = make(architectures=["OwnLlamaForCausalLM"])
    assert model.assumed == (
        "OwnLlamaForCausalLM is taken for LlamaForCausalLM, which its model_type llama is",
    )


def test_an_unknown_dtype_is_refused(make: Any) -> None:
    with pytest.raises(PlanError, match="float9"):
        understand(make.config(), "small", dtype="float9")


def test_a_wrapper_without_its_tower_says_so() -> None:
    text = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text}
    model = understand(Settings(config, "config.json"), "small")
    assert model.assumed == ("the configuration describes no vision tower, none is counted",)
