"""Logs that are printed, and followed while they grow; a real play, ended as people end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

# What ansible-playbook ends with when somebody interrupts it, once or twice.
INTERRUPTED = (99, -signal.SIGINT)


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press the keys of a terminal that interrupt, and return what was printed after that."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        # ansible-core 2.19 kills a worker in the middle of a line, then waits for the lock that
        # it held: whoever follows logs has to press again.
        os.killpg(process.pid, signal.SIGINT)
        return process.communicate()[0]


def test_lines_carry_host_and_process_and_go_on_until_interrupted(
    play: Any, tmp_path: Path
) -> None:
    cluster = tmp_path / "c"
    logs = {name: cluster / f"logs/{name}.log" for name in ("a-serve", "b-serve")}
    for name, log in logs.items():
        record = {
            **{"cluster": "demo", "engine": name[0], "argv": ["vllm"], "digest": "d"},
            **{"supervisor": "supervisord", "log": str(log), "log_offset": 0},
        }
        for path, text in (
            (cluster / f"processes/{name}.json", json.dumps(record)),
            (log, f"{name} one\n{name} two\n{name} half a li"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    broken = tmp_path / "broken/processes"
    broken.mkdir(parents=True)
    (broken / "a-serve.json").write_text("{")
    look = {"cluster": "demo", "cluster_dir": str(cluster), "lines": 1}
    process = play.start(
        [
            {"name": "one", "follow_logs": {**look, "engine": "a"}, "register": "seen"},
            {"name": "paths", "ansible.builtin.debug": {"msg": "paths {{ seen.paths }}"}},
            {"name": "broken", "follow_logs": {**look, "cluster_dir": f"{tmp_path}/broken"}},
            {"name": "all", "follow_logs": {**look, "follow": True}},
        ],
        callback="default",
        own_session=True,
    )
    printed: list[str] = []
    overdue = threading.Timer(300, os.killpg, (process.pid, signal.SIGKILL))
    overdue.start()

    def read_until(text: str) -> None:
        while not (printed and text in printed[-1]):
            line = process.stdout.readline()
            assert line, "".join(printed)
            printed.append(line.rstrip())

    with process:
        try:
            read_until("here b-serve | b-serve two")
            for name, log in logs.items():
                with log.open("a") as file:
                    file.write(f"ne of {name}\nanother\n")
            read_until("here a-serve | another")
            read_until("here b-serve | another")
            rest = interrupt(process)
        finally:
            overdue.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode in INTERRUPTED
    said = [line.partition(" | ")[2] for line in printed if line.startswith("here a-serve |")]
    # Once for the engine alone, once for all; then what was new, no line twice, none by half.
    assert said == ["a-serve two", "a-serve two", "a-serve half a line of a-serve", "another"]
    before = printed[: next(n for n, line in enumerate(printed) if "TASK [all]" in line)]
    assert not any("b-serve |" in line for line in before)
    assert any(f"paths ['{logs['a-serve']}']" in line for line in before)
    assert any("a-serve.json is not valid JSON" in line for line in before)
    assert "another" not in rest


def test_more_hosts_than_workers_are_refused_at_once(play: Any, tmp_path: Path) -> None:
    look = {"cluster": "demo", "cluster_dir": str(tmp_path)}
    tasks = [
        {"name": "follow", "follow_logs": {**look, "follow": True}},
        {"name": "once", "follow_logs": look},
    ]
    played = play(tasks, {"n1": {}, "n2": {}, "n3": {}}, flags=("--forks", "2"))
    refusals = {one["msg"] for one in played.tasks["follow"].values()}
    assert refusals == {"the logs of 3 hosts cannot be followed by 2 workers"}
    assert not any(one.get("failed") for one in played.tasks["once"].values())
