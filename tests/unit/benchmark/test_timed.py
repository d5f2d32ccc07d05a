"""What a command cost, and what a run's own record says of where the time went."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.benchmark import profile
from vllm_ansible.benchmark.timed import TooLong, timed

BUSY = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


def test_processor_time_of_a_command_and_what_it_waited_for_is_counted(tmp_path: Path) -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    cost = timed([sys.executable, "-c", program], os.environ, tmp_path / "log", 60)
    assert cost.status == 0
    assert cost.cpu_seconds >= 0.5
    assert cost.seconds >= 0.5
    # Both count in ticks of the kernel, which a busy machine gives to whoever runs just then.
    assert cost.all_cpu_seconds >= cost.cpu_seconds / 2
    assert 0 <= cost.others <= 1


def test_the_exit_status_and_the_output_are_kept(tmp_path: Path) -> None:
    program = "print('said'); raise SystemExit(3)"
    cost = timed([sys.executable, "-c", program], os.environ, tmp_path / "log", 60)
    assert cost.status == 3
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_command_whose_time_is_up_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TooLong, match=r"/bin/sleep took more than 0 s"):
        timed(["/bin/sleep", "60"], os.environ, tmp_path / "log", 0.3)


def task(stage: str, name: str, seconds: float, host: str = "a", status: str = "ok") -> Any:
    words = {"stage": stage, "task": name, "host": host, "status": status}
    return {"event": "task", "seconds": seconds, **words}


EVENTS = [
    task("prepare", "Look", 0.4),
    task("prepare", "Look", 0.6, host="b"),
    task("prepare", "Judge", 0.05),
    task("serve", "Look", 0.5),
    task("serve", "Start", 0.04, status="skipped"),
    {"event": "stage_end", "stage": "prepare", "seconds": 0.7, "ok": True},
    {"event": "stage_end", "stage": "serve", "seconds": 0.6, "ok": True},
    {"event": "run_end", "ok": True, "changed": 1},
]


def test_tasks_are_told_apart_by_where_they_run() -> None:
    found = profile.kinds(EVENTS)
    assert found["module"] == {"tasks": 2, "seconds": pytest.approx(1.1)}
    assert found["controller"] == {"tasks": 1, "seconds": pytest.approx(0.05)}
    assert found["skipped"] == {"tasks": 1, "seconds": pytest.approx(0.04)}


def test_the_latest_record_is_read(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    text = "".join(json.dumps(event) + "\n" for event in EVENTS)
    (tmp_path / "latest/events.jsonl").write_text(text)
    events = profile.read(tmp_path)
    assert profile.stages(events) == {"prepare": 0.7, "serve": 0.6}
    assert profile.changed(events) == 1
    assert profile.slowest(events, 1) == [(0.6, "prepare", "Look")]
    assert profile.failure(events) == "no failure was recorded"
