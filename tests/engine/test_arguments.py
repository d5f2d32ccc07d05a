"""The installed vLLM's own parser judges arguments, through the path that `vllm serve` takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import arguments

LINES = {
    "good": ["/m", "--max-model-len", "2k", "--enforce-eager", "--tensor_parallel_size=2"],
    "misspelt": ["/m", "--max-modell-len", "2048"],
    "wrong type": ["/m", "--max-num-seqs", "many"],
    "wrong choice": ["/m", "--dtype", "float31"],
    "needs another": ["/m", "--enable-auto-tool-choice"],
    "no server": ["--help"],
    "attention": ["/m", "--attention-backend", "triton_attn"],
    "no such attention": ["/m", "--attention-backend", "FLASH_MLA"],
    "attention not installed": ["/m", "--attention-backend", "FLASHINFER"],
}


# Whether a processor has AMX is asked of torch alone.
WITH_AMX = "import torch; torch.cpu._is_amx_tile_supported = lambda: True\n"


@pytest.fixture(scope="module")
def answers(engine: Path, models_dir: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """Ask once for all: the import of vLLM is what takes long."""
    latent, other = str(models_dir("deepseek-v3")), str(models_dir("llama"))
    named = ["--attention-backend", "CPU_MLA"]
    with_amx = {
        "float32": [latent, "--dtype", "float32"],
        "by another name": [latent, "--dtype", "half", "--attention-backend", "AMX_MLA"],
        "float32 of the reference": [latent, "--dtype", "float32", *named],
        "in its configuration": [latent, "-ac.backend", "CPU_MLA", "--dtype", "float32"],
        "bfloat16": [latent, "--dtype", "bfloat16"],
        "as the model is": [latent],
        "no latent attention": [other, "--dtype", "float32"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguments, "SCRIPT", WITH_AMX + arguments.SCRIPT)
        return arguments.ask(str(engine / "bin/python"), LINES | with_amx)


def test_good_arguments_pass(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["good"] == answers["attention"] == {"ok": True}


def test_an_attention_backend_that_this_vllm_lacks_is_refused_with_those_that_are_near(
    answers: dict[str, dict[str, Any]],
) -> None:
    found = answers["no such attention"]
    assert found["complaint"] == "this vLLM has no attention backend FLASH_MLA"
    assert found["close"]["FLASH_MLA"][0] == "FLASHMLA"
    # Named, and its package is not there.
    found = answers["attention not installed"]
    assert "FLASHINFER does not load: ModuleNotFoundError" in found["complaint"]


def test_a_misspelt_argument_comes_with_the_one_that_was_meant(
    answers: dict[str, dict[str, Any]],
) -> None:
    found = answers["misspelt"]
    assert found["complaint"] == "unrecognized arguments: --max-modell-len 2048"
    assert found["close"]["--max-modell-len"][0] == "--max-model-len"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrong type", "--max-num-seqs: invalid"),
        ("wrong choice", "choose from 'auto', 'bfloat16'"),
        ("needs another", "requires --tool-call-parser"),
        ("no server", "print help"),
    ],
)
def test_other_mistakes_are_told_in_vllms_words(
    answers: dict[str, dict[str, Any]], name: str, says: str
) -> None:
    assert not answers[name]["ok"]
    assert says in answers[name]["complaint"]
    assert "\n" not in answers[name]["complaint"]


def test_what_only_a_start_refuses_is_refused_before_one(engine: Path, tmp_path: Path) -> None:
    """A serving engine would be stopped first, and its successor would not come up."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = [str(tmp_path), "--skip-tokenizer-init"]
    long = [*model, "--max-model-len", "5000000"]
    lines = {
        "good": [*model, "--max-model-len", "1024"],
        "long": long,
        "allowed": long,
        "quantization": [*model, "--quantization", "fp7"],
    }
    allowed = {"allowed": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}
    python = str(engine / "bin/python")
    answers = arguments.ask(python, lines, deep=True, environments=allowed)
    assert answers["good"] == answers["allowed"] == {"ok": True}
    assert answers["long"]["complaint"].startswith(
        "User-specified max_model_len (5000000) is greater than the derived max_model_len"
    )
    assert "fp7" in answers["quantization"]["complaint"]


def test_the_backend_that_a_processor_with_amx_takes_is_asked_for_its_types(
    answers: dict[str, dict[str, Any]],
) -> None:
    refused = {name: one for name, one in answers.items() if name not in LINES and not one["ok"]}
    assert sorted(refused) == ["by another name", "float32"]
    told = arguments.refusal("experts", refused["float32"])
    assert told["msg"] == (
        "vLLM refuses the arguments of engine experts: its attention backend for this processor, "
        "AMX_MLA, computes in bfloat16, not in float32"
    )
    assert "dtype: bfloat16" in told["fix"] and "attention_backend: CPU_MLA" in told["fix"]
