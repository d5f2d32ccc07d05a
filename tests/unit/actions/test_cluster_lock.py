"""Whose lock may be taken, told by the processes of this machine; a real play."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher

PLUGIN = Path(__file__).parents[3] / "action_plugins/cluster_lock.py"


def holder(**more: Any) -> dict[str, Any]:
    here = {"host": socket.gethostname(), "boot_id": launcher.boot_id()}
    return {"user": "ada", **here, **launcher.identity(os.getpid()), **more}


@pytest.fixture
def ended() -> dict[str, Any]:
    """Return the identity of a process that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        identity = launcher.identity(process.pid)
        process.communicate()
    return identity


def test_only_a_holder_of_this_machine_is_known_to_be_gone(ended: dict[str, Any]) -> None:
    # A module carries the same name, so it cannot be imported by it.
    spec = importlib.util.spec_from_file_location("lock_action", PLUGIN)
    assert spec is not None and spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    assert not plugin.is_over(holder())
    assert plugin.is_over(holder(**ended))
    assert plugin.is_over(holder(start_time=1))  # its number was given to another process
    assert plugin.is_over(holder(boot_id="an-earlier-one"))
    assert not plugin.is_over(holder(**ended, host="bastion"))
    assert not plugin.is_over({})


def test_a_cluster_is_held_against_the_living_and_taken_from_the_dead(
    play: Any, tmp_path: Path, ended: dict[str, Any]
) -> None:
    for name, who in (("alive", holder()), ("dead", holder(**ended))):
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
            hold("dead", "dead"),
            hold("let go", "dead", state="free"),
        ],
        environment={"VLLM_ANSIBLE_RUN_DIR": ""},
    )
    for name in ("check", "alive"):
        assert played[name]["failed"] and played[name]["lock"]["run"] == "other", name
        assert "another run holds this cluster: other by ada@" in played[name]["msg"]
        assert "break_lock" in played[name]["fix"]
    taken = played["dead"]["lock"]
    # Without a record of the run it is known by the process that lives as long as the run.
    assert taken["run"] == f"pid-{taken['holder']['pid']}"
    assert taken["holder"]["host"] == socket.gethostname()
    assert taken["holder"]["boot_id"] == launcher.boot_id()
    assert not launcher.alive(taken["holder"]["pid"], taken["holder"]["start_time"])
    assert played["let go"]["lock"] == {} and not (tmp_path / "dead/lock.json").exists()
