"""What vLLM accepted is remembered with the environment that accepted it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_ansible.node import arguments


def python_that(directory: Path, does: str) -> str:
    """Return a program that stands where the environment's Python would."""
    path = directory / "python"
    path.write_text(f"#!/bin/sh\ncat > {directory}/asked\n{does}\n")
    path.chmod(0o755)
    return str(path)


def test_the_answer_is_the_last_line_whatever_comes_before(tmp_path: Path) -> None:
    answer = '{"chat": {"ok": true}}'
    python = python_that(tmp_path, f"echo INFO starting; echo '{answer}'")
    assert arguments.ask(python, {"chat": ["/m", "--x"]}) == {"chat": {"ok": True}}
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked == {"lines": {"chat": ["/m", "--x"]}, "environments": {}, "deep": False}


def test_a_vllm_that_does_not_import_is_no_refusal(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo 'ImportError: libnuma.so.1' >&2; exit 1")
    with pytest.raises(arguments.ArgumentsError, match="could not be asked") as error:
        arguments.ask(python, {"chat": []})
    assert error.value.details["found"] == "ImportError: libnuma.so.1"


def test_another_environment_must_be_asked_again(tmp_path: Path) -> None:
    path = str(tmp_path / "evidence/arguments.json")
    assert arguments.remembered(path) == []
    arguments.remember(path, [arguments.key("f1", ["/m"])])
    assert arguments.key("f1", ["/m"]) in arguments.remembered(path)
    assert arguments.key("f2", ["/m"]) not in arguments.remembered(path)
    assert arguments.key("f1", ["/m", "--x"]) not in arguments.remembered(path)


def test_a_refusal_names_what_was_probably_meant() -> None:
    found = arguments.refusal(
        "chat",
        {
            "complaint": "unrecognized arguments: --max-modell-len 1",
            "close": {"--max-modell-len": ["--max-model-len"]},
        },
    )
    assert found["expected"] == "--max-modell-len is near --max-model-len"
    assert "engine chat" in found["where"]
    assert set(found) == {"msg", "expected", "found", "where", "fix"}


def test_a_refusal_that_knows_its_fix_says_it() -> None:
    found = arguments.refusal("experts", {"complaint": "no", "close": {}, "fix": "dtype: bfloat16"})
    assert found["fix"] == "dtype: bfloat16"
