"""Options of the engine that change what a rank holds, and the arguments that they become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.towers import with_tower
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.command import OK, REFUSED, main
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights

CONFIGS = Path(__file__).parents[4] / "data/public/configs"
QWEN_VL = CONFIGS / "Qwen--Qwen3-VL-30B-A3B-Instruct_config.json"


def test_text_only_leaves_the_tower_out_and_data_mode_keeps_it_whole() -> None:
    model = load(str(QWEN_VL))
    tower = sum(one.bytes for one in model.others)
    kept, without, whole = (
        weights(one, Split(4))[0]
        for one in (model, with_tower(model, text_only=True), with_tower(model, encoder_data=True))
    )
    assert without + tower == pytest.approx(whole, abs=2)
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
    assert main([*words[:-1], "0"]) == REFUSED
    assert "batched tokens is 0" in capsys.readouterr().err
