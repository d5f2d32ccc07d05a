"""Nodes whose time is nearly over: the real agent and launcher, and what stands for an engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from tests.ports import free_port
from vllm_ansible.node import launcher
from vllm_ansible.node.process import process
from vllm_ansible.node.slurm import drain as slurm_drain
from vllm_ansible.slurm.channel import run

from .conftest import Held

SERVER = Path(__file__).parents[2] / "slurm/slow_server.py"
PATIENCE_SECONDS = 120.0


def recorded(directory: Path, name: str, *argv: str) -> Path:
    """Write the record of a process, as managed_process does, and return its path."""
    files = process.Files(str(directory), name)
    Path(files.directory).mkdir(exist_ok=True)
    labels = {"cluster": "r1", "engine": "chat", "stop_timeout_seconds": 30}
    spec = process.Spec((sys.executable, *argv))
    record = process.new_record(spec, files, labels, "supervisord")
    process.save(files, {**record, "instance": uuid.uuid4().hex})
    return Path(files.record)


def start(held: Held, name: str, *arguments: str) -> None:
    """Start a process on a node as its supervisor does, and wait until it is ready."""
    record = recorded(held.directory, name, str(SERVER), *arguments)
    inside = f"setsid {sys.executable} {launcher.__file__} {record} >/dev/null 2>&1 </dev/null &"
    assert run(held.node, ["/bin/sh", "-c", inside])[0] == 0


def log(directory: Path) -> list[str]:
    path = directory / "log"
    return path.read_text().splitlines() if path.exists() else []


def refused(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def ask(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def test_a_server_finishes_what_it_was_asked_and_ranks_of_other_nodes_stay_until_then(
    hold: Callable[..., Held], tmp_path: Path
) -> None:
    first, second = hold(0, 2, PATIENCE_SECONDS), hold(1, 2, PATIENCE_SECONDS)
    port = free_port()
    start(first, "chat-serve", str(port), str(tmp_path))
    start(second, "chat-ray", "rank", str(tmp_path))
    wait_until(lambda: {"listens", "follows"} <= set(log(tmp_path)), 120, "both to be there")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, port)
        wait_until(lambda: "asked" in log(tmp_path), 120, "a request in flight")
        (tmp_path / "draining-12-0").mkdir()
        wait_until(lambda: refused(port), 120, "no more requests")
        # That node has nothing to finish, and waits for the other one.
        wait_until(lambda: (tmp_path / "draining-12-0/1").exists(), 120, "a node that is done")
        assert second.agent.poll() is None
        (tmp_path / "go").touch()
        assert answer.result() == "answered"
    said = [agent.communicate(timeout=120)[0] for agent in (first.agent, second.agent)]
    assert "servers that have finished: 1" in said[0]
    assert (first.agent.returncode, second.agent.returncode) == (0, 0)
    told = list(dict.fromkeys(log(tmp_path)))
    assert told[-3:] == ["answered", "the server has ended", "the rank has ended"], told


def test_a_server_that_takes_too_long_keeps_nobody(
    hold: Callable[..., Held], tmp_path: Path
) -> None:
    held = hold(drain_seconds=1)
    port = free_port()
    start(held, "chat-serve", str(port), str(tmp_path))
    wait_until(lambda: "listens" in log(tmp_path), 120, "a server")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, port)
        wait_until(lambda: "asked" in log(tmp_path), 120, "a request in flight")
        (tmp_path / "draining-12-0").mkdir()
        assert "servers did not finish in time" in held.agent.communicate(timeout=120)[0]
        # At a site Slurm kills what is left with the step.
        state = process.read_json(str(tmp_path / "processes/chat-serve.state.json")) or {}
        launcher.kill_all({state["launcher"]["pid"], state["process"]["pid"]})


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("chat-serve", (), 1),
        ("chat-serve-1", (), 1),
        ("chat-serve", ("--headless",), 0),
        ("chat-ray", (), 0),
    ],
)
def test_only_what_takes_requests_is_asked_to_end(
    tmp_path: Path, name: str, arguments: tuple[str, ...], expected: int
) -> None:
    record = recorded(tmp_path, name, str(SERVER), "rank", str(tmp_path), *arguments)
    started = subprocess.Popen([sys.executable, launcher.__file__, str(record)])
    wait_until(lambda: "follows" in log(tmp_path), 120, "a process")
    path = str(tmp_path / f"processes/{name}.state.json")
    state = wait_until(lambda: process.read_json(path), 120, "its state")
    found = slurm_drain.servers([started.pid, state["process"]["pid"], os.getpid()])
    started.terminate()
    started.wait(120)
    assert found == ({state["process"]["pid"]: started.pid} if expected else {})


def test_a_server_that_cannot_finish_is_asked_to_end(
    hold: Callable[..., Held], tmp_path: Path
) -> None:
    held = hold(drain_seconds=PATIENCE_SECONDS)
    # No guard of ours is in it: the other signal would kill it without a word.
    start(held, "chat-serve", "rank", str(tmp_path))
    wait_until(lambda: "follows" in log(tmp_path), 120, "a server")
    (tmp_path / "draining-12-0").mkdir()
    assert "servers that have finished: 1" in held.agent.communicate(timeout=120)[0]
    assert "the rank has ended" in log(tmp_path)


def test_a_mark_counts_for_one_start_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "draining-12-0").mkdir()
    assert slurm_drain.there(str(tmp_path / "draining-12-0"))
    assert not slurm_drain.there(str(tmp_path / "draining-12-1"))
    assert not slurm_drain.there(str(tmp_path / "gone" / "draining-12-0"))
