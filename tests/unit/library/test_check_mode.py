"""In check mode the modules that only look and remember leave nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("check", [True, False])
def test_a_named_directory_is_checked_and_recorded_unless_only_asked(
    run_module: Module, tmp_path: Path, check: bool
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text("{}")
    (mine / "model.bin").write_text("x")
    args = {
        "cluster_dir": str(tmp_path / "c"),
        "host": "h1",
        "engines": [{"name": "chat", "model": str(mine)}],
    }
    assert run_module("model_weights", args, [], check=check)["complete"]
    assert (tmp_path / "c").exists() is not check


@pytest.mark.parametrize("check", [True, False])
def test_accepted_arguments_are_remembered_unless_only_asked(
    run_module: Module, tmp_path: Path, check: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'chat': {'ok': True}})}'\n")
    python.chmod(0o755)
    args = {
        "cluster_dir": str(tmp_path / "c"),
        "python": str(python),
        "fingerprint": "f",
        "engines": {"chat": ["/m"]},
    }
    assert run_module("vllm_arguments", args, [], check=check)["asked"] == ["chat"]
    assert (tmp_path / "c").exists() is not check
