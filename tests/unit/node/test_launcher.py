"""What a launcher removes outside its process, in the Pythons that hosts have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import SOURCE, wait_until

Start = Callable[..., subprocess.Popen[bytes]]
CODE = """
import sys
from vllm_ansible.node import launcher
launcher.CLEAN_SECONDS = float(sys.argv[2])
sys.exit(launcher.main(sys.argv[1]))
"""


@pytest.fixture
def start(node_python: str, tmp_path: Path) -> Start:
    """Start a launcher whose cleanup is a script of the shell, given so many seconds."""

    def started(argv: list[str], cleanup: str, seconds: float) -> subprocess.Popen[bytes]:
        record: dict[str, Any] = {
            **{"argv": argv, "cleanup": ["sh", "-c", cleanup], "directory": str(tmp_path)},
            **{"state_path": str(tmp_path / "state.json"), "log": str(tmp_path / "log")},
            **{"instance": "i", "limits": {}, "user": None, "stop_timeout_seconds": 10},
            "full_environment": dict(os.environ),
        }
        path = tmp_path / "record.json"
        path.write_text(json.dumps(record))
        return subprocess.Popen(
            [node_python, "-c", CODE, path, str(seconds)],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    return started


def test_a_wish_to_stop_during_the_cleanup_ends_both_in_order(start: Start, tmp_path: Path) -> None:
    cleanup = "touch cleaning; until [ -e go ]; do sleep 0.02; done; echo cleaned >> cleaned"
    with start(["sleep", "600"], cleanup, 60) as launcher:
        wait_until((tmp_path / "cleaning").exists)
        launcher.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        try:
            assert launcher.wait(30) == 128 + signal.SIGTERM
        finally:
            launcher.kill()
    # Once before the start and once after the end, neither cut short.
    assert (tmp_path / "cleaned").read_text() == "cleaned\n" * 2


def test_a_cleanup_that_hangs_is_killed_in_time(start: Start, tmp_path: Path) -> None:
    before = time.monotonic()
    with start(["true"], "echo $$ >> pids; exec sleep 600", 0.2) as launcher:
        try:
            assert launcher.wait(30) == 0
        finally:
            launcher.kill()
    assert time.monotonic() - before >= 0.4
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2 and not any(Path("/proc", pid).exists() for pid in pids)
