"""Whose lock may be taken, told by the processes of this machine; a real play."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.cluster import lock


def holder(**more: Any) -> dict[str, Any]:
    return {**lock.holder_of(os.getpid(), "ada"), **more}


@pytest.fixture
def ended() -> dict[str, Any]:
    """Return the identity of a process that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        identity = launcher.identity(process.pid)
        process.communicate()
    return identity


def test_a_cluster_is_held_against_the_living_and_taken_from_the_dead(
    play: Any, tmp_path: Path, ended: dict[str, Any]
) -> None:
    unseen = holder(**ended, namespace="pid:[4026532000]")
    for name, who in (("alive", holder()), ("dead", holder(**ended)), ("unseen", unseen)):
        (tmp_path / name).mkdir()
        # Renewed in a far future, so that only its holder's death can free it.
        content = {"run": "other", "holder": who, "since": 1e10, "renewed": 1e10}
        (tmp_path / name / "lock.json").write_text(json.dumps(content))

    def hold(name: str, directory: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "cluster_lock": {"cluster_dir": str(tmp_path / directory), **more}}

    played = play(
        [
            {**hold("check", "alive"), "check_mode": True},
            hold("alive", "alive"),
            hold("unseen", "unseen"),
            hold("dead", "dead"),
            hold("let go", "dead", state="free"),
        ],
        environment={"VLLM_ANSIBLE_RUN_DIR": ""},
    )
    for name in ("check", "alive"):
        assert played[name]["failed"] and played[name]["lock"]["run"] == "other", name
        assert "another run holds this cluster: other by ada@" in played[name]["msg"]
        assert "break_lock" in played[name]["fix"]
    # The same number in another container of this name is another process.
    assert played["unseen"]["failed"]
    assert "cannot be seen from here: it is in another namespace" in played["unseen"]["found"]
    assert f"process {ended['pid']} of ada does not run on" in played["unseen"]["fix"]
    taken = played["dead"]["lock"]
    # Without a record of the run it is known by the process that lives as long as the run.
    assert taken["run"].startswith(f"pid-{taken['holder']['pid']}-")
    assert (taken["holder"]["uid"], taken["holder"]["namespace"]) == (
        os.geteuid(),
        holder()["namespace"],
    )
    assert taken["holder"]["host"] == socket.gethostname()
    assert taken["holder"]["boot_id"] == launcher.boot_id()
    assert not launcher.alive(taken["holder"]["pid"], taken["holder"]["start_time"])
    assert played["let go"]["lock"] == {} and not (tmp_path / "dead/lock.json").exists()
