"""Options of the engine that change what a rank holds, and the arguments that they become."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.drafts import with_drafts
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.towers import with_tower
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.command import NO_LAYOUT, OK, REFUSED, main
from vllm_ansible.plan.estimate.layouts.request import Request, check
from vllm_ansible.plan.estimate.memory.lora import Slots, slot_bytes
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.problem import PlanError

CONFIGS = Path(__file__).parents[4] / "data/public/configs"
QWEN_VL = CONFIGS / "Qwen--Qwen3-VL-30B-A3B-Instruct_config.json"


def test_text_only_leaves_the_tower_out_and_data_mode_keeps_it_whole() -> None:
    model = load(str(QWEN_VL))
    tower = sum(one.bytes for one in model.others)
    # From 0.21 on blocks are not split, and the tower's take some MiB more than its tensors.
    for version, blocks in (("0.20.2", 0), ("0.32.0", 6 * 2**20)):
        kept, without, whole = (
            weights(one, Split(4), version)[0]
            for one in (
                model,
                with_tower(model, text_only=True),
                with_tower(model, encoder_data=True),
            )
        )
        assert without + tower + blocks == pytest.approx(whole, abs=2)
        assert without < kept < whole


def test_a_smaller_step_leaves_more_cache_and_takes_prompts_in_smaller_parts(ask: Any) -> None:
    asked = ask("llama-70b", "1x8 H100-80", wanted=Candidate(8))
    usual, small = answer(asked), answer(replace(asked, batched_tokens=2048))
    assert usual.chosen.budget is not None and small.chosen.budget is not None
    assert small.chosen.budget.kv_tokens[1] > usual.chosen.budget.kv_tokens[1]
    words = small.start.arguments
    assert words[words.index("--max-num-batched-tokens") + 1] == "2048"
    assert "--max-num-batched-tokens" not in usual.start.arguments


def test_a_plan_is_started_with_the_options_it_was_made_for() -> None:
    there = machines("1x4 H100-80")
    model = load(str(QWEN_VL))
    text = answer(Request(with_tower(model, text_only=True), there, text_only=True))
    data = answer(Request(with_tower(model, encoder_data=True), there, encoder_data=True))
    assert "--language-model-only" in text.start.arguments
    assert " ".join(data.start.arguments).endswith("--mm-encoder-tp-mode data")


def test_the_command_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(QWEN_VL), "1x2 H100-80", "--text-only", "--batched-tokens", "4096"]
    assert main(words) == OK
    told = capsys.readouterr().out
    assert "--language-model-only" in told and "--max-num-batched-tokens 4096" in told
    assert "--no-enable-prefix-caching" not in told
    assert main([*words, "--no-prefix-caching"]) == OK
    assert "--no-enable-prefix-caching" in capsys.readouterr().out
    assert main([*words[:-1], "0"]) == REFUSED
    assert "batched tokens is 0" in capsys.readouterr().err


LLAMA = CONFIGS / "meta-llama--Meta-Llama-3.1-8B_config.json"
R1 = CONFIGS / "deepseek-ai--DeepSeek-R1_config.json"
# The layer that proposes tokens, as the index of DeepSeek-R1's checkpoint sums it up; it repeats
# the model's embedding and head, which an engine has once.
R1_NEXT_LAYER = 15_424_227_440
# PEFT prints it for Llama-3-8B and -3.1-8B with rank 16 on all linear layers ("trainable params:
# 41,943,040 || all params: 8,072,204,288").
LLAMA_RANK_16 = 41_943_040


def test_a_slot_for_an_adapter_is_as_large_as_an_adapter_of_its_rank() -> None:
    model = load(str(LLAMA))
    assert slot_bytes(model.layers, Split(1), Slots(1, 16)) == 2 * LLAMA_RANK_16
    assert slot_bytes(model.layers, Split(1), Slots(4, 64)) == 16 * 2 * LLAMA_RANK_16
    # Half of an adapter's matrices are whole on every rank.
    halved = slot_bytes(model.layers, Split(2), Slots(1, 16))
    assert LLAMA_RANK_16 < halved < 2 * LLAMA_RANK_16


def test_slots_for_adapters_leave_less_cache_and_are_started_with(ask: Any) -> None:
    asked = ask("llama-8b", "1x1 H100-80")
    plain, slots = answer(asked), answer(replace(asked, lora=Slots(8, 128)))
    assert plain.chosen.budget is not None and slots.chosen.budget is not None
    taken = plain.chosen.budget.stages[0].kv_bytes.mid - slots.chosen.budget.stages[0].kv_bytes.mid
    assert taken == pytest.approx(8 * 8 * 2 * LLAMA_RANK_16, abs=2)
    assert " ".join(slots.start.arguments).endswith("--max-loras 8 --max-lora-rank 128")


def test_adapters_of_experts_that_stay_whole_are_refused(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [config, "1x8 H200", "--lora-slots", "1", "--tensor", "8", "--expert"]
    assert main(words) == NO_LAYOUT
    assert "keeps experts whole, and vLLM has no LoRA for those" in capsys.readouterr().err
    assert main([config, "1x8 H200", "--lora-slots", "0"]) == REFUSED


def test_the_layer_that_proposes_tokens_is_the_checkpoints() -> None:
    model = load(str(R1))
    (draft,) = with_drafts(model).drafts
    made = [one for one in draft.tensors if not one.name.endswith("kv_b_absorbed")]
    ends = sum(one.bytes for one in (*model.embedding, *model.head))
    assert sum(one.bytes for one in made) + ends == pytest.approx(R1_NEXT_LAYER, rel=0.001)
    assert draft.kv == model.layers[-1].kv


def test_layers_that_propose_tokens_take_weights_and_cache_of_the_last_stage(ask: Any) -> None:
    model = load(str(R1))
    asked = Request(model, machines("2x8 H200"), wanted=Candidate(8, 2))
    plain = answer(asked).chosen.budget
    found = answer(replace(asked, model=with_drafts(model), speculative=1))
    drafting = found.chosen.budget
    assert plain is not None and drafting is not None
    assert plain.stages[0].weights == drafting.stages[0].weights
    assert plain.stages[1].weights < drafting.stages[1].weights
    assert plain.kv_tokens[1] > drafting.kv_tokens[1]
    assert any("without speculation" in note for note in found.notes)
    with pytest.raises(PlanError, match="has no layers that are planned as the method mtp"):
        check(replace(ask("llama-8b", "1x1 H200"), speculative=1))


EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 2048,
}


def test_a_draft_model_takes_weights_and_cache_and_is_named_in_the_command(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tmp_path / "eagle.json"
    draft.write_text(json.dumps(EAGLE3))
    words = [str(CONFIGS / "meta-llama--Meta-Llama-3.1-8B_config.json"), "1x1 H100"]
    sizes = []
    for more in ([], ["--draft", str(draft)]):
        assert main([*words, *more, "--json"]) == 0
        (stage,) = json.loads(capsys.readouterr().out)["chosen"]["stages"]
        sizes.append(stage["weights_bytes"])
    # What joins three states, the layer with its joined input, and a head over 32,000 words.
    joins, layer = 3 * 4096 * 4096, 4096 * (2 * 6144 + 4096 + 3 * 14336)
    assert sizes[1] - sizes[0] == pytest.approx(2 * (joins + layer + 32000 * 4096), rel=0.003)
    assert main([*words, "--draft", str(draft)]) == 0
    assert '"method":"eagle3"' in capsys.readouterr().out
    assert main([*words, "--draft", config]) == REFUSED
    assert "is no draft model that is known here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "other",
    [
        {"hidden_size": 2048, "num_attention_heads": 16},
        {"target_hidden_size": 5120},
        {"vocab_size": 151936},
        {"architectures": ["EagleLlamaForCausalLM"], "vocab_size": 32000},
        {"architectures": ["EagleLlamaForCausalLM"], "hidden_size": 5120},
    ],
)
def test_a_draft_model_of_another_target_is_refused(
    other: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tmp_path / "eagle.json"
    draft.write_text(json.dumps({**EAGLE3, **other}))
    words = [str(CONFIGS / "meta-llama--Meta-Llama-3.1-8B_config.json"), "1x1 H100"]
    assert main([*words, "--draft", str(draft)]) == REFUSED
    assert "is a draft model of another target" in capsys.readouterr().err


def test_a_faster_layout_is_not_said_to_leave_devices_idle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """TP8 with whole experts, planned faster than two ranks of TP4: "only 8 devices work"."""
    words = [str(CONFIGS / "Qwen--Qwen3.5-35B-A3B_config.json"), "1x8 H100", "--all"]
    assert main(words) == OK
    printed = capsys.readouterr().out
    assert "4% more, within the band, and it takes tensor parallelism of 8" in printed
    assert "devices work" not in printed


V41 = CONFIGS / "deepseek-ai--DeepSeek-V4.1-Flash_config.json"


def test_a_reason_compares_two_figures_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """TP8 EP8 beside TP4 DP2 EP8: "products take 3.9 ms a step instead of 3.9"."""
    assert main([str(V41), "1x8 H200", "--all"]) == OK
    compared = re.findall(
        r"takes? ([\d.]+) ms(?: a step)? instead of ([\d.]+)", capsys.readouterr().out
    )
    assert compared
    assert all(float(there) > float(here) for there, here in compared)


def test_stages_that_take_longer_leave_no_device_idle(capsys: pytest.CaptureFixture[str]) -> None:
    """TP4 PP2 beside two engines of TP4, all eight devices at work: "only 8 devices work"."""
    assert main([str(CONFIGS / "Qwen--Qwen3-8B_config.json"), "1x8 H200", "--all"]) == OK
    printed = capsys.readouterr().out
    assert re.search(r"TP4 PP2 .*: a token takes [\d.]+ ms instead of", printed)
    assert "only 8 devices work" not in printed


def test_a_longer_time_is_slower_not_less(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(V41), "1x8 H200", "--latency", "--concurrency", "1"]) == OK
    printed = capsys.readouterr().out
    assert "5.8 against 5.4 ms a token: 6% slower, within the band" in printed
    assert "% less" not in printed


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("Qwen--Qwen3-8B", ["--tensor", "16"], "TP16 of Qwen/Qwen3-8B cannot run"),
        ("Qwen--Qwen3-8B", ["--tensor", "2", "--expert"], "the model has no experts to spread"),
        (
            "deepseek-ai--DeepSeek-V4.1-Flash",
            ["--tensor", "4", "--pipeline", "2"],
            "no pipeline stages are planned for this model",
        ),
        (
            "deepseek-ai--DeepSeek-V4.1-Flash",
            ["--mtp", "1"],
            "no layers that are planned as the method mtp",
        ),
    ],
)
def test_a_layout_that_cannot_run_is_named_as_it_was_asked_for(
    name: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One engine of TP16 needs more than there is; "8 x TP16" would be somebody else's question."""
    assert main([str(CONFIGS / f"{name}_config.json"), "1x8 H200", *words]) != OK
    refused = capsys.readouterr().err
    assert said in refused and "8 x TP" not in refused
