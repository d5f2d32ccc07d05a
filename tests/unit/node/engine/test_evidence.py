from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.engine import evidence

NO_PROCESS = 1 << 22


def record(log: Path, engine: str = "a", **more: Any) -> dict[str, Any]:
    return {"engine": engine, "log": str(log), "log_offset": 0, "running": True, "pid": 0, **more}


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """Give a shell with a Python below it, both waiting."""
    program = "print('started', flush=True); input()"
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process
        process.communicate("over\n")


def tool(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_only_this_start_is_read_and_only_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\nthis start\n")
    assert evidence.tail_of(str(log), 8, 1000) == "this start\n"
    assert evidence.tail_of(str(log), 8, 6) == "start\n"
    assert evidence.tail_of(str(log), 99, 1000) == "earlier\nthis start\n"  # it was replaced
    assert evidence.tail_of(str(tmp_path / "none"), 0, 1000) == ""


def test_bytes_that_are_no_text_do_not_hide_the_rest(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe broken\n")
    assert evidence.tail_of(str(tmp_path / "log"), 0, 1000).endswith(" broken\n")


def test_the_logs_of_an_engine_and_of_its_ray_are_collected(tmp_path: Path) -> None:
    for name in ("a-serve", "b-serve"):
        (tmp_path / name).write_text(f"{name} says\n")
    records = {name: record(tmp_path / name, name[0]) for name in ("a-serve", "b-serve")}
    ray = tmp_path / "a [ray]"
    logs = ray / "session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text("died\n")
    (logs / "gcs_server.err").write_text("\n")
    (logs / "worker-1.err").write_text("not looked at\n")
    found = evidence.tails(records, "a", str(ray), 1000)
    assert found == {"a-serve": "a-serve says\n", "a-ray-raylet.err": "died\n"}


def test_two_engines_on_one_host_keep_their_ray_logs_apart(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for engine in ("a", "b"):
        logs = tmp_path / engine / "session_latest/logs"
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text(f"{engine} died\n")
    result = run_module(
        "engine_logs_info",
        {
            "cluster": "demo",
            "cluster_dir": str(tmp_path / "demo"),
            "engines": ["a", "b"],
            "ray_dirs": {"a": f"{tmp_path}/a", "b": f"{tmp_path}/b"},
        },
        [],
    )
    assert result["tails"] == {f"{one}-ray-raylet.err": f"{one} died\n" for one in ("a", "b")}


def test_only_python_processes_have_a_stack(parent: subprocess.Popen[str]) -> None:
    (child,) = launcher.descendants({parent.pid}, launcher.process_table())
    assert evidence.python_processes(parent.pid) == [child]
    assert evidence.python_processes(NO_PROCESS) == []


def test_stacks_are_taken_of_what_runs_below_the_engine(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    (child,) = launcher.descendants({parent.pid}, launcher.process_table())
    records = {
        "a-serve": record(tmp_path, pid=parent.pid),
        "a-ray": record(tmp_path, pid=os.getpid(), running=False),
        "b-serve": record(tmp_path, engine="b", pid=os.getpid()),
    }
    py_spy = tool(tmp_path / "py-spy", 'echo "stack by $*"')
    found = evidence.stacks(records, "a", py_spy)
    assert found == {f"a-serve-stack-{child}": f"stack by dump --pid {child}\n"}


def test_a_stack_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    refused = tool(tmp_path / "py-spy", "echo 'Permission Denied: Try running again' >&2; exit 1")
    assert evidence.stack(refused, 7).startswith("no stack of process 7: Permission Denied")
    assert "No such file" in evidence.stack(str(tmp_path / "none"), 7)


def test_an_engine_of_many_processes_does_not_hold_the_logs_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evidence, "STACKS_SECONDS", 0.5, raising=False)
    monkeypatch.setattr(evidence, "python_processes", lambda root: list(range(1000, 1100)))
    slow = tool(tmp_path / "py-spy", "sleep 0.3; echo stack")
    found = evidence.stacks({"a-serve": record(tmp_path, pid=os.getpid())}, "a", slow)
    assert len(found) < 10
    assert found["a-serve-stack-1000"] == "stack\n"
    assert "0.5 seconds were over before" in list(found.values())[-1]
