"""The installed vLLM's own parser judges arguments, through the path that `vllm serve` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import arguments

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


@pytest.fixture(scope="module")
def answers(engine: Path) -> dict[str, dict[str, Any]]:
    """Ask once for all: the import of vLLM is what takes long."""
    return arguments.ask(str(engine / "bin/python"), LINES)


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
