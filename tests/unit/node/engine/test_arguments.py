"""What vLLM accepted is remembered with the environment that accepted it."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vllm_ansible.node.engine import arguments


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


def test_a_sleeper_that_a_models_own_code_has_left_holds_nobody(tmp_path: Path) -> None:
    # It keeps both pipes open, long after the answer is there.
    does = f"""sleep 600 & echo $! > {tmp_path}/sleeper; echo '{{"chat": {{"ok": true}}}}'"""
    python, started = python_that(tmp_path, does), time.monotonic()
    try:
        assert arguments.ask(python, {"chat": []}) == {"chat": {"ok": True}}
        assert time.monotonic() - started < 240
        sleeper = int((tmp_path / "sleeper").read_text())
        with pytest.raises(ProcessLookupError):
            for _ in range(2400):
                os.kill(sleeper, 0)
                time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int((tmp_path / "sleeper").read_text()), signal.SIGKILL)


def test_a_models_own_code_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "SECONDS", 2.0, raising=False)
    python, started = python_that(tmp_path, "echo loading >&2; sleep 600"), time.monotonic()
    with pytest.raises(arguments.ArgumentsError, match="could not be asked") as error:
        arguments.ask(python, {"chat": []})
    assert time.monotonic() - started < 240
    assert error.value.details["found"] == "no answer within 2 seconds, it was ended: loading"


def test_what_a_models_own_code_prints_is_kept_to_its_end(tmp_path: Path) -> None:
    does = "yes '0123456789abcdef' | head -c 200000000; echo; echo '{\"chat\": {\"ok\": true}}'"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert arguments.ask(python_that(tmp_path, does), {"chat": []}) == {"chat": {"ok": True}}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_who_does_not_read_the_question_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "SECONDS", 2.0, raising=False)
    path, started = tmp_path / "python", time.monotonic()
    path.write_text("#!/bin/sh\nsleep 600\n")
    path.chmod(0o755)
    with pytest.raises(arguments.ArgumentsError, match="could not be asked"):
        arguments.ask(str(path), {"chat": ["x" * 1_000_000]})
    assert time.monotonic() - started < 240


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
