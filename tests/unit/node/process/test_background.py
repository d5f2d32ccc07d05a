"""Real background tasks: detached, followed, interrupted, started again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import alive, wait_until

Node = Callable[..., dict[str, Any]]


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    return str(tmp_path / "tasks")


def status(tasks: str, name: str = "work") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(tasks) / f"{name}.json").read_text())
    return found


def ended(node: Node, tasks: str, name: str = "work") -> dict[str, Any]:
    wait_until(lambda: status(tasks, name)["state"] != "running")
    return node("look", tasks_dir=tasks, name=name, log_lines=5)


def test_work_in_python_reports_and_returns(node: Node, tasks: str) -> None:
    assert node("count", tasks_dir=tasks, name="work", steps=3)["changed"]
    found = ended(node, tasks)
    assert (found["state"], found["result"], found["log_tail"]) == (
        "done",
        {"steps": 3},
        ["counted"],
    )
    assert found["progress"] == {"done": 3, "total": 3, "unit": "steps", "text": "step 3"}


def test_work_that_fails_says_why(node: Node, tasks: str) -> None:
    node("count", tasks_dir=tasks, name="work", steps=1, error=True)
    found = ended(node, tasks)
    assert (found["state"], found["message"]) == ("failed", "it broke")
    assert found["details"] == {"found": "pieces"}


def test_what_is_done_is_not_done_again(node: Node, tasks: str) -> None:
    task = {"tasks_dir": tasks, "name": "work", "argv": ["/bin/true"]}
    node("start", **task, digest="a")
    ended(node, tasks)
    assert node("start", **task, digest="a")["reason"] == "it is done"
    assert node("start", **task, digest="b")["reason"] == "what is wanted changed"
    ended(node, tasks)
    assert node("start", **task, digest="b", again=True)["changed"]
    ended(node, tasks)


def test_start_returns_while_the_command_runs(node: Node, tasks: str) -> None:
    argv = ["/bin/sh", "-c", "echo first; exec sleep 600"]
    first = node("start", tasks_dir=tasks, name="work", argv=argv)["status"]
    assert first["state"] == "running"
    wait_until(lambda: status(tasks)["progress"]["text"] == "first")
    second = node("start", tasks_dir=tasks, name="work", argv=argv)
    assert (second["changed"], second["status"]["pid"]) == (False, first["pid"])
    assert node("stop", tasks_dir=tasks, name="work") is True
    assert not alive(first["process"]["pid"])
    assert node("look", tasks_dir=tasks, name="work")["message"] == "it was stopped"
    assert node("stop", tasks_dir=tasks, name="work") is False


def test_the_module_stops_those_that_are_named_and_no_other(
    node: Node, tasks: str, run_module: Callable[..., dict[str, Any]]
) -> None:
    for name in ("a", "b", "c"):
        node("start", tasks_dir=tasks, name=name, argv=["/bin/sleep", "600"])
    args = {"tasks_dir": tasks, "names": ["a", "never", "b"], "state": "stopped"}
    for check in (True, False):
        told = run_module("background_command", args, [], check=check)
        assert told["changed"] and told["stopped"] == ["a", "b"]
    assert [status(tasks, name)["state"] for name in "abc"] == ["failed", "failed", "running"]
    assert not run_module("background_command", args, [])["changed"]
    assert node("stop", tasks_dir=tasks, name="c") is True


def test_a_task_leaves_the_session_and_its_descriptors(node: Node, tasks: str) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    node("start", tasks_dir=tasks, name="work", argv=["/bin/sleep", "600"])
    os.close(writer)
    found = status(tasks)
    for pid in (found["launcher"]["pid"], found["process"]["pid"]):
        assert os.getsid(pid) != os.getsid(0)
        links = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert links <= {"/dev/null", found["log"], *(one for one in links if "pipe:" in one)}
    os.close(reader)
    node("stop", tasks_dir=tasks, name="work")


def test_a_command_gets_its_surroundings(node: Node, tasks: str, tmp_path: Path) -> None:
    program = 'umask; pwd; echo "$WORD"; touch made; exit 7'
    how = {"environment": {"WORD": "50% $HOME"}, "directory": str(tmp_path), "umask": 0o027}
    node("start", tasks_dir=tasks, name="work", argv=["/bin/sh", "-c", program], how=how)
    found = ended(node, tasks)
    assert found["log_tail"] == ["0027", str(tmp_path), "50% $HOME"]
    assert (found["state"], found["message"]) == ("failed", "exit status 7: 50% $HOME")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o640


def test_a_program_that_is_missing_is_named(node: Node, tasks: str) -> None:
    node("start", tasks_dir=tasks, name="work", argv=["/nowhere/uv"])
    assert "/nowhere/uv" in ended(node, tasks)["message"]


def test_a_task_killed_by_the_kernel_is_a_failure(node: Node, tasks: str) -> None:
    node("start", tasks_dir=tasks, name="work", argv=["/bin/sleep", "600"])
    os.kill(status(tasks)["process"]["pid"], signal.SIGKILL)
    found = ended(node, tasks)
    assert (found["state"], found["message"]) == ("failed", "killed by signal 9")


def test_a_task_whose_keeper_was_killed_has_died_and_can_be_started_again(
    node: Node, tasks: str, tmp_path: Path
) -> None:
    program = f"(setsid sleep 600 & echo $! > {tmp_path}/pid; wait) & exec sleep 600"
    node("start", tasks_dir=tasks, name="work", argv=["/bin/sh", "-c", program])
    left = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    found = status(tasks)
    os.kill(found["launcher"]["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(found["process"]["pid"]))
    look = node("look", tasks_dir=tasks, name="work")
    assert (look["state"], look["message"]) == ("died", "it was killed while it ran")
    again = node("start", tasks_dir=tasks, name="work", argv=["/bin/true"])
    assert again["reason"] == "it died: it was killed while it ran"
    assert not alive(left)
    assert ended(node, tasks)["state"] == "done"


def test_a_task_for_something_else_gives_way(node: Node, tasks: str) -> None:
    sleep = {"tasks_dir": tasks, "name": "work", "argv": ["/bin/sleep", "600"]}
    first = node("start", **sleep, digest="a")["status"]
    second = node("start", **sleep, digest="b")
    assert second["reason"] == "it runs with an outdated request"
    assert not alive(first["pid"])
    assert alive(second["status"]["pid"])
    node("stop", tasks_dir=tasks, name="work")


def test_a_directory_that_cannot_be_written_to_is_an_error(node: Node, tasks: str) -> None:
    Path(tasks).mkdir()
    (Path(tasks) / "work.log").mkdir()
    result = node("start", tasks_dir=tasks, name="work", argv=["/bin/true"])
    assert "IsADirectoryError" in result["error"]
