"""What is kept of a process that ended by itself, and is then stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process import process
from vllm_ansible.node.process.manage import manage
from vllm_ansible.node.process.process import Files, Look


class Gone:
    """A supervisor whose process has ended."""

    name = "supervisord"

    def look(self, files: Files, record: Any) -> Look:
        del files, record
        return Look(False, exit_status=0, why="it ended with exit status 0")

    def start(self, files: Files, record: Any) -> list[str]:
        raise AssertionError

    def stop(self, files: Files, record: Any, seconds: float) -> None:
        raise AssertionError

    def remove(self, files: Files) -> None:
        raise AssertionError


@pytest.mark.parametrize("check", [False, True])
def test_what_had_ended_is_not_wanted_any_more_once_it_is_stopped(
    tmp_path: Path, check: bool
) -> None:
    files = Files(str(tmp_path), "chat-serve")
    (tmp_path / "processes").mkdir()
    process.save(files, {"name": "chat-serve", "cluster": "c1", "argv": ["vllm"]})
    done = manage(Gone(), files, None, {"cluster": "c1"}, "stopped", check=check)
    # It did not run before: nothing of the host has changed.
    assert (done["changed"], done["running"]) == (False, False)
    record = process.read_json(files.record)
    assert record
    assert record.get("stopped", False) is not check
