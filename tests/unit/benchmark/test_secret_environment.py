"""A secret that comes by file reaches the command, and nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECRET = "sk-by-file-only"  # noqa: S105 - opens nothing
# Tells that the secret came, without telling it.
PROGRAM = 'test "$TOKEN" = "$(cat "$0")" && echo it came; exec sleep 600'


def status(tasks: Path, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        found: dict[str, Any] = json.loads((tasks / "work.json").read_text())
        if wanted(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def begin(run_module: Callable[..., dict[str, Any]], tmp_path: Path, token: Path) -> dict[str, Any]:
    arguments = {
        "tasks_dir": str(tmp_path / "tasks"),
        "name": "work",
        "argv": ["/bin/sh", "-c", PROGRAM, str(token)],
        "secret_environment": {"TOKEN": str(token)},
    }
    return run_module("background_command", arguments, [])


def test_a_secret_reaches_the_command_alone(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    tasks = tmp_path / "tasks"
    answer = begin(run_module, tmp_path, token)
    found = status(tasks, lambda one: one["progress"]["text"] == "it came")
    try:
        assert SECRET not in json.dumps([answer, found])
        assert SECRET not in (tasks / "work.log").read_text()
        pids = [found["launcher"]["pid"], found["process"]["pid"]]
        assert not [pid for pid in pids if SECRET in Path(f"/proc/{pid}/cmdline").read_text()]
        keeper = Path(f"/proc/{found['launcher']['pid']}/environ").read_text()
        assert SECRET not in keeper
        assert "TOKEN" not in os.environ
    finally:
        stop = {"tasks_dir": str(tasks), "name": "work", "state": "stopped"}
        assert run_module("background_command", stop, [])["changed"]


def test_a_secret_without_content_ends_the_command_before_it_starts(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("\n")
    begin(run_module, tmp_path, token)
    found = status(tmp_path / "tasks", lambda one: one["state"] != "running")
    assert found["state"] == "failed"
    assert found["message"] == f"{token}, which should hold TOKEN, is empty"


def test_a_secret_that_is_missing_is_named(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    begin(run_module, tmp_path, tmp_path / "nowhere")
    found = status(tmp_path / "tasks", lambda one: one["state"] != "running")
    assert "nowhere" in found["message"]
