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
}


@pytest.fixture(scope="module")
def answers(engine: Path) -> dict[str, dict[str, Any]]:
    """Ask once for all: the import of vLLM is what takes long."""
    return arguments.ask(str(engine / "bin/python"), LINES)


def test_good_arguments_pass(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["good"] == {"ok": True}


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
