"""A server that is started again between two looks is one that starts, not one that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ansible.node.watchdog.main import Watchdog
from vllm_ansible.node.watchdog.settings import Engine, Server, Settings
from vllm_ansible.node.watchdog.snapshot import Process

SERVER = Server("h1", "127.0.0.1", 1, "m", local=True)
ROOT = Process(10, 100, 1, "vllm", "vllm serve", "S", 0)


def test_what_refuses_while_it_loads_again_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_ansible.node.watchdog.server.AGAIN_SECONDS", 0)
    told = {"host": "h1", "cluster_dir": "/c", "state_dir": str(tmp_path), "key_file": "/k"}
    settings = Settings(
        **told,
        py_spy="",
        answer_seconds=20,
        on_processors=False,
        engines=(Engine("r1", (0,), SERVER),),
    )
    watchdog = Watchdog(settings)
    progress = watchdog.watched["r1"].progress
    progress.answered(0.0)
    for root in (ROOT, replace(ROOT, pid=20, started=900)):
        monkeypatch.setattr(
            watchdog.snapshots, "take", lambda _, root=root: {"r1-serve": {root.pid: root}}
        )
        watchdog.look()
    assert not progress.serving
    watchdog.watched["r1"]._failed(ConnectionRefusedError())
    watchdog.watched["r1"]._failed(ConnectionRefusedError())
    watchdog.look()
    assert watchdog.known == {}
