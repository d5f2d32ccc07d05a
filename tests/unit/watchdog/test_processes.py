"""How looks at processes that follow each other are judged: what lasts, and what ended first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.unit.router.running import wait_until
from vllm_ansible.node.watchdog.peers import MISSES, Reached, answers
from vllm_ansible.node.watchdog.processes import Processes, stopped
from vllm_ansible.node.watchdog.settings import Engine, Peer, Settings
from vllm_ansible.node.watchdog.snapshot import Process, Snapshots, Waiting

SETTINGS = Settings(
    host="h1",
    cluster_dir="/c",
    state_dir="/s",
    key_file="/k",
    py_spy="",
    answer_seconds=20,
    on_processors=False,
    engines=(Engine("r1", (2,)), Engine("r1-b", (0, 1))),
)
ROOT = Process(10, 100, 1, "raylet", "/opt/raylet --head", "S", 0)
RANK = Process(11, 110, 10, "ray::RayWorker", "ray::RayWorkerProc.run", "S", 0)


@pytest.fixture
def judge() -> Processes:
    return Processes(SETTINGS)


def group(*members: Process) -> dict[str, dict[int, Process]]:
    return {"r1-ray": {one.pid: one for one in members}}


def test_a_process_that_a_reader_of_stacks_stops_for_a_moment_is_not_named(
    judge: Processes,
) -> None:
    held = group(ROOT, replace(RANK, state="t"))
    assert judge.look(held, 0) == []
    assert judge.look(group(ROOT, RANK), 4) == []
    assert judge.look(held, 8) == []
    (found,) = judge.look(held, 15)
    assert "held by a debugger" in found.found


def test_a_stopped_rank_carries_the_number_of_the_only_rank_here(judge: Processes) -> None:
    held = group(ROOT, replace(RANK, state="T"))
    judge.look(held, 0)
    (found,) = judge.look(held, 7)
    assert found.found.startswith("rank 2 (ray::RayWorkerProc.run), process 11 of r1-ray")
    assert (found.engine, found.since) == ("r1", 0)


def test_a_thread_that_waits_for_a_disk_and_goes_on_is_not_named(judge: Processes) -> None:
    for second in range(0, 60, 2):
        waits = replace(RANK, waiting=(Waiting(12, f"switches {second}", "nfs_wait"),))
        assert judge.look(group(ROOT, waits), second) == []
    waits = replace(RANK, waiting=(Waiting(12, "switches 58", "nfs_wait"),))
    (found,) = judge.look(group(ROOT, waits), 58 + 20)
    assert "waits in the kernel (state D) in nfs_wait" in found.found


def test_ranks_that_end_with_their_root_are_one_ended_process(judge: Processes) -> None:
    judge.look(group(ROOT, RANK), 0)
    judge.look(group(ROOT, RANK), 10)
    (found,) = judge.look({}, 12)
    assert (found.kind, found.process) == ("ended", "r1-ray")
    assert judge.look(group(replace(ROOT, pid=20, started=900)), 20) == []


def test_a_rank_that_ends_alone_is_named_until_another_takes_its_place(judge: Processes) -> None:
    judge.look(group(ROOT, RANK), 0)
    judge.look(group(ROOT, RANK), 10)
    (found,) = judge.look(group(ROOT), 12)
    assert (found.kind, found.pid) == ("lost", 11)
    assert judge.look(group(ROOT), 14) == [found]
    assert judge.look(group(ROOT, replace(RANK, pid=13, started=950)), 16) == []


def test_idle_workers_of_ray_come_and_go(judge: Processes) -> None:
    idle = replace(RANK, title="ray::IDLE")
    judge.look(group(ROOT, idle), 0)
    judge.look(group(ROOT, idle), 10)
    assert judge.look(group(ROOT), 12) == []


def test_a_process_is_of_the_engine_with_the_longest_name(judge: Processes) -> None:
    held = {"r1-b-serve": {11: replace(RANK, title="VLLM::EngineCore", state="T")}}
    judge.look(held, 0)
    (found,) = judge.look(held, 7)
    assert found.engine == "r1-b"


def test_a_compiler_below_an_engine_is_seen(judge: Processes) -> None:
    judge.look(group(ROOT, replace(RANK, command="ptxas", title="ptxas -O3")), 5)
    assert judge.compiling == {"r1": 5}


def test_a_host_is_lost_once_it_does_not_answer_any_more_and_never_before_it_did() -> None:
    there = [False]
    taken = lambda _: 0.001 if there[0] else None  # noqa: E731
    one = Reached(SETTINGS.engines[0], Peer("h2", "10.0.0.2", 8000), taken)
    for _ in range(2 * MISSES):
        one.look()
    assert one.judge() is None
    there[0] = True
    one.look()
    there[0] = False
    for _ in range(MISSES - 1):
        one.look()
    assert one.judge() is None
    one.look()
    found = one.judge()
    assert found is not None and found.found.startswith("h2 (10.0.0.2)")
    there[0] = True
    one.look()
    assert one.judge() is None


def test_a_link_is_slow_when_every_answer_takes_long_and_did_not_before() -> None:
    taken = [0.15]
    one = Reached(SETTINGS.engines[0], Peer("h2", "10.0.0.2", 8000), lambda _: taken[0])

    def look(*seconds: float) -> str:
        for taken[0] in seconds:
            one.look()
        found = one.judge()
        return found.found if found else ""

    # A host far away answers as slowly at any time.
    assert look(*[0.15] * MISSES) == ""
    assert look(0.002) == ""
    # One answer in time is enough: the others waited for a processor.
    assert look(*[0.2] * (MISSES - 1), 0.002, *[0.2] * (MISSES - 1)) == ""
    assert "is slow: an answer takes 200 ms or more, 2.0 ms before" in look(0.2)
    assert look(0.003) == ""


def test_what_this_host_takes_itself_for_a_connection_is_not_the_links() -> None:
    (port,) = free_ports(1)
    assert answers(Peer("h2", "127.0.0.1", port)) is not None


def test_after_the_clock_was_set_what_was_seen_before_stays_as_old(judge: Processes) -> None:
    held = group(ROOT, replace(RANK, state="T"))
    judge.look(group(ROOT, replace(RANK, command="ptxas")), 9_000)
    judge.look(held, 9_002)
    judge.shift(-3600)
    # Seven seconds later by a clock that was set back by an hour.
    (found,) = judge.look(held, 9_009 - 3600)
    assert (found.kind, found.since) == ("stopped", 9_002 - 3600)
    assert judge.compiling == {"r1": 9_000 - 3600}


def test_a_process_that_a_signal_has_stopped_is_named_by_one_look(tmp_path: Path) -> None:
    mark = str(tmp_path / "processes/r1-serve.json")
    words = [sys.executable, "-c", "import time\nprint(1, flush=True)\ntime.sleep(600)"]
    environment = {**os.environ, "VLLM_ANSIBLE_PROCESS": mark}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as one:
        try:
            assert one.stdout and one.stdout.readline()
            look = lambda: stopped(Snapshots(str(tmp_path)).take(0.0), ["r1-serve"])  # noqa: E731
            assert look() == []
            one.send_signal(signal.SIGSTOP)
            wait_until(look)
            (said,) = look()
            assert f"process {one.pid} of r1-serve, is stopped (state T)" in said
            assert stopped(Snapshots(str(tmp_path)).take(0.0), ["r2-serve"]) == []
        finally:
            one.kill()
