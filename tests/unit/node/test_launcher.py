"""What a launcher removes outside its process, and keeps of its log, in the Pythons of hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher

from .conftest import SOURCE, wait_until

Start = Callable[..., subprocess.Popen[bytes]]
# The time of a cleanup that writes its number into `pids` begins once it has.
CODE = """
import os, sys, time
from vllm_ansible.node import launcher
spawn, pids = launcher.spawn, os.path.join(os.path.dirname(sys.argv[1]), "pids")
def numbers():
    return open(pids).read().count("\\n") if os.path.exists(pids) else 0
def spawned(record, *more):
    before = numbers()
    found = spawn(record, *more)
    waits = record["argv"] == record["cleanup"] and "pids" in record["argv"][-1]
    while waits and numbers() == before:
        time.sleep(0.01)
    return found
launcher.spawn = spawned
launcher.CLEAN_SECONDS = float(sys.argv[2])
launcher.LAST_NOTE_SECONDS = launcher.FIRST_NOTE_SECONDS = float(sys.argv[3])
launcher.MOST_LOG_BYTES = 20_000
sys.exit(launcher.main(sys.argv[1]))
"""


@pytest.fixture
def start(node_python: str, tmp_path: Path) -> Start:
    """Start a launcher whose cleanup is a script of the shell, given so many seconds.

    pause: seconds from one look at the log to the next.
    """

    def started(
        argv: list[str], cleanup: str, seconds: float, pause: float = 0.2
    ) -> subprocess.Popen[bytes]:
        record: dict[str, Any] = {
            **{"argv": argv, "cleanup": ["sh", "-c", cleanup], "directory": str(tmp_path)},
            **{"state_path": str(tmp_path / "state.json"), "log": str(tmp_path / "log")},
            **{"instance": "i", "limits": {}, "user": None, "stop_timeout_seconds": 10},
            "full_environment": dict(os.environ),
        }
        path = tmp_path / "record.json"
        path.write_text(json.dumps(record))
        return subprocess.Popen(
            [node_python, "-c", CODE, path, str(seconds), str(pause)],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    return started


def test_a_wish_to_stop_during_the_cleanup_ends_both_in_order(start: Start, tmp_path: Path) -> None:
    cleanup = "touch cleaning; until [ -e go ]; do sleep 0.02; done; echo cleaned >> cleaned"
    with start(["sleep", "600"], cleanup, 60) as running:
        wait_until((tmp_path / "cleaning").exists)
        running.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        try:
            assert running.wait(120) == 128 + signal.SIGTERM
        finally:
            running.kill()
    # Once before the start and once after the end, neither cut short.
    assert (tmp_path / "cleaned").read_text() == "cleaned\n" * 2


def test_a_cleanup_that_hangs_is_killed_in_time(start: Start, tmp_path: Path) -> None:
    before = time.monotonic()
    with start(["true"], "echo $$ >> pids; exec sleep 600", 0.2) as running:
        try:
            assert running.wait(120) == 0
        finally:
            running.kill()
    assert time.monotonic() - before >= 0.4
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2 and not any(Path("/proc", pid).exists() for pid in pids)


# Each line has its number and is one write: `print` makes two of it where PYTHONUNBUFFERED is set.
# It goes on until the log has begun anew, however late that is, but not for ever where it never
# does.
WRITER = """
import itertools, os, time
left, end = 400, time.monotonic() + 90
for number in itertools.count():
    os.write(1, f"{number:9d}\\n".encode())
    left -= os.path.exists("log.1") and os.path.getsize("log") < 20_000
    if not left or time.monotonic() > end: break
    if number % 4 == 0: time.sleep(0.001)
"""


@pytest.mark.parametrize("secret", [False, True])
def test_a_log_that_has_grown_large_begins_anew_and_one_before_it_is_kept(
    start: Start, tmp_path: Path, secret: bool
) -> None:
    """Also where a filter writes it."""
    if secret:
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets/api_key").write_text("a-secret-of-the-cluster")
    log, kept = tmp_path / "log", tmp_path / "log.1"
    with start([sys.executable, "-c", WRITER], "true", 60) as running:
        assert running.wait(120) == 0
    assert kept.stat().st_size > 20_000 and kept.stat().st_mode & 0o777 == 0o640
    # All in their order. What is printed in the moment of the cut is lost: microseconds, or as long
    # as a launcher in the middle of it waits for a processor. A filter writes many lines at once,
    # of which the copy may have met the first pages alone.
    whole = (kept.read_text().rpartition("\n")[0], log.read_text())
    before, after = ([int(line) for line in text.splitlines()] for text in whole)
    for numbers in (before, after):
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert before[0] == 0 and before[-1] < after[0] and len(after) > 300
    found = {path.name for path in tmp_path.iterdir() if "log" in path.name}
    assert found == {"log", "log.1"}


# Each of its children's children is the launcher's when it ends, some fifty in a second.
PARENT = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end and not os.path.exists("log.1"):
    print("x" * 1000, flush=True)
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
    time.sleep(0.01)
"""


def test_a_log_begins_anew_while_orphans_end_all_the_time(start: Start, tmp_path: Path) -> None:
    with start([sys.executable, "-c", PARENT], "true", 60, pause=2) as running:
        assert running.wait(240) == 0
    assert (tmp_path / "log.1").exists()


def test_a_log_that_cannot_be_copied_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    # What lies at that path by now is another file.
    log.unlink()
    log.write_bytes(b"y" * 7)
    try:
        assert launcher.begin_anew(handle, str(log), 10) == 110
    finally:
        os.close(handle)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"y" * 7]
