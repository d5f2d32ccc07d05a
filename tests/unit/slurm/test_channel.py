"""Commands over a shared step: the real agent, relay and multiplexer, without Slurm."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ansible.slurm.channel import StepEnded, run
from vllm_ansible.slurm.step import without_wishes

from .conftest import Held


def shell(held: Held, command: str, data: bytes = b"") -> tuple[int, bytes, bytes]:
    return run(held.node, ["/bin/sh", "-c", command], [data])


def test_a_command_has_its_input_output_errors_and_status(held: Held) -> None:
    assert shell(held, "cat; echo no >&2; exit 7", b"a\n\0b") == (7, b"a\n\0b", b"no\n")


def test_many_commands_share_one_step(held: Held) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: shell(held, f"sleep 0.1; echo {n}"), range(24)))
    assert [int(output) for _, output, _ in done] == list(range(24))
    assert held.steps == 1


def test_a_step_takes_no_wishes_from_a_job_around_it() -> None:
    around = {"SLURM_MEM_PER_CPU": "1000", "SQUEUE_PARTITION": "b", "SLURM_CONF": "a", "PATH": "c"}
    assert without_wishes(around) == {"SLURM_CONF": "a", "PATH": "c"}
    assert without_wishes({"SCANCEL_INTERACTIVE": "1"}) == {}


def test_megabytes_pass_both_ways_unchanged(held: Held) -> None:
    data = os.urandom(3 << 20)
    assert shell(held, "cat", data) == (0, data, b"")


def test_a_command_that_reads_nothing_stops_no_other(held: Held, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    waits = f"until test -e {go_on}; do sleep 0.05; done"
    with ThreadPoolExecutor(2) as pool:
        deaf = pool.submit(shell, held, waits, bytes(4 << 20))
        try:
            quick = pool.submit(shell, held, "echo quick")
            assert quick.result(120)[1] == b"quick\n"
            assert not deaf.done()
        finally:
            go_on.touch()
        assert deaf.result()[0] == 0


def memory(process: int) -> int:
    """Return the bytes that a process has in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_command_that_reads_nothing_is_sent_no_more_than_a_window(held: Held) -> None:
    shell(held, "true")
    before, sent = memory(held.agent.pid), 0

    def data() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 1 << 20
            yield bytes(1 << 20)

    assert run(held.node, ["/bin/sh", "-c", "sleep 2"], data())[0] == 0
    assert memory(held.agent.pid) - before < 16 << 20
    assert sent <= 4 << 20


def test_a_client_that_has_stopped_stops_no_other(held: Held) -> None:
    shell(held, "true")
    before, go_on = memory(held.agent.pid), threading.Event()
    taken: list[int] = []

    def stopped(output: bytes) -> None:
        go_on.wait(120)
        taken.append(len(output))

    command = ["/bin/sh", "-c", "head -c 67108864 /dev/zero"]
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(run, held.node, command, (), stopped)
        try:
            time.sleep(1)
            assert shell(held, "echo quick")[1] == b"quick\n"
            assert not taken
            assert memory(held.agent.pid) - before < 16 << 20
        finally:
            go_on.set()
        assert slow.result(120)[0] == 0
    assert sum(taken) == 67108864


def test_a_command_ends_with_whoever_asked_and_what_it_detached_stays(held: Held) -> None:
    mark = held.directory / "detached"
    loop = f"while sleep 0.1; do date +%s%N > {mark}; done"
    # Not before it has detached itself.
    there = f"until test -e {mark}; do sleep 0.05; done"
    command = f"setsid sh -c '{loop}' >/dev/null 2>&1 & {there}; echo $$ $!; sleep 60"
    with pytest.raises(RuntimeError):
        run(
            held.node,
            ["/bin/sh", "-c", command],
            output=_leave(held.directory / "pids"),
        )
    caller, detached = map(int, (held.directory / "pids").read_text().split())
    try:
        deadline = time.monotonic() + 60
        while Path(f"/proc/{caller}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = mark.read_text() if mark.exists() else ""
        while (mark.read_text() if mark.exists() else "") == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(detached, 15)


def _leave(path: Path):  # type: ignore[no-untyped-def]
    def leave(output: bytes) -> None:
        path.write_bytes(output)
        raise RuntimeError("gone")

    return leave


def test_a_program_that_is_not_there_is_told(held: Held) -> None:
    status, _, errors = run(held.node, ["/no/such/program"])
    assert status == 127
    assert b"No such file" in errors


def test_a_killed_command_says_by_which_signal(held: Held) -> None:
    assert shell(held, "kill -9 $$")[0] == 137


def test_a_step_that_finds_no_agent_says_so(held: Held) -> None:
    held.agent.kill()
    held.agent.wait()
    with pytest.raises(StepEnded, match="no agent answers"):
        shell(held, "true")


def test_a_step_that_has_just_ended_for_want_of_work_is_started_again(held: Held) -> None:
    brief = replace(held.node, persist_seconds=0)
    number = 0
    while number < 6 or held.steps < 2:
        assert number < 60, "it does not end"
        assert run(brief, ["/bin/echo", str(number)])[1] == f"{number}\n".encode()
        # About as long as it waits for more, and then longer.
        time.sleep(0.9 + number / 20)
        number += 1


def test_who_comes_just_after_a_step_has_ended_is_told_of_its_end(held: Held) -> None:
    shell(held, "true")
    held.agent.kill()
    held.agent.wait()
    for _ in range(6):
        with pytest.raises(StepEnded):
            shell(held, "true")
        time.sleep(0.5)


def test_an_agent_that_dies_in_the_middle_is_told(held: Held) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(shell, held, "sleep 30")
        time.sleep(0.5)
        held.agent.kill()
        with pytest.raises(StepEnded):
            asked.result(120)


def test_the_agent_ends_what_it_started_and_leaves_nothing(held: Held) -> None:
    (held.directory / "left" / "file").write_text("kept for the node alone")
    # Detached twice, as daemons do: known by descent all the same.
    command = "(setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!) & wait"
    detached = int(shell(held, command)[1])
    other = subprocess.Popen(["sleep", "600"])
    try:
        held.agent.terminate()
        assert held.agent.wait(120) == 0
        assert not Path(f"/proc/{detached}").exists()
        assert not (held.directory / "left").exists()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_temporary_files_are_beside_the_sockets_and_private(held: Held) -> None:
    place = Path(shell(held, "echo $TMPDIR")[1].decode().strip())
    assert place.parent == held.directory / "left"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_what_was_detached_and_ended_is_buried(held: Held) -> None:
    gone = int(shell(held, "(setsid sleep 0.1 >/dev/null 2>&1 </dev/null & echo $!) & wait")[1])
    deadline = time.monotonic() + 60
    # Another process may have its number by now.
    while parent(gone) == held.agent.pid:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_started_hears_of_the_end(held: Held) -> None:
    assert shell(held, "grep SigBlk /proc/self/status")[1].split() == [b"SigBlk:", b"0" * 16]
