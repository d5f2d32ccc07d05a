"""What a watchdog names of real processes that are harmed, and that it is calm of others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .running import Running


def test_a_stopped_rank_is_named_with_its_stacks_and_a_way_out_until_it_goes_on(
    running: Running,
) -> None:
    rank = running.ranks()["VLLM::Worker_TP1"]
    os.kill(rank, signal.SIGSTOP)
    (found,) = running.until(running.named)
    assert found["kind"] == "stopped" and found["stage"] == "serving"
    assert f"VLLM::Worker_TP1, process {rank} of r1-serve is stopped" in found["found"]
    assert found["fix"] == f"kill -CONT {rank} resumes it"
    stacks = running.until(lambda: list(Path(found["stacks"]).glob(f"*/{rank}.txt")))
    running.until(lambda: "state T" in stacks[0].read_text())
    os.kill(rank, signal.SIGCONT)
    running.until(lambda: not running.named())
    assert running.state()["past"][-1]["key"] == found["key"]


def test_a_rank_that_is_killed_is_named_while_its_server_lives_and_then_the_server(
    running: Running,
) -> None:
    rank = running.ranks()["VLLM::Worker_TP0"]
    # It has to have been a rank for some seconds, as the watchdog has seen it.
    began = running.state()["at"]
    running.until(lambda: running.state()["at"] >= began + 6)
    os.kill(rank, signal.SIGKILL)
    (found,) = running.until(running.named)
    assert (found["kind"], found["pid"]) == ("lost", rank)
    assert found["found"].endswith("has ended, while r1-serve runs on")
    for pid in (*running.ranks().values(), running.engine.pid):
        os.kill(pid, signal.SIGKILL)
    running.engine.wait()
    running.until(lambda: any(one["kind"] == "ended" for one in running.named()))


def test_an_engine_that_hangs_is_named_idle_or_not_though_its_health_says_200(
    running: Running,
) -> None:
    running.set(hung=True)
    (found,) = running.until(running.named)
    assert found["kind"] == "hung" and found["engine"] == "r1"
    assert "computes nothing" in found["found"] and "1 requests running" in found["found"]
    running.set(hung=False)
    running.until(lambda: not running.named())


def test_an_engine_whose_core_is_dead_is_named_by_its_own_words(running: Running) -> None:
    running.set(code=500)
    (found,) = running.until(running.named)
    assert found["kind"] == "refuses" and "EngineDeadError" in found["found"]


def test_a_pause_of_the_whole_machine_is_no_hang(tmp_path: Path) -> None:
    """A question waited meanwhile, and the watchdog goes on before the engine does."""
    with Running(tmp_path, answer_seconds=10.0) as running:
        running.serves()
        running.set(hung=True)
        # A look that finds more requests than the one before would count as progress.
        running.until(running.question_seen)
        running.looked()
        running.watchdog.send_signal(signal.SIGSTOP)
        time.sleep(running.answer_seconds + 2)
        before = running.state()["at"]
        running.watchdog.send_signal(signal.SIGCONT)
        running.until(lambda: running.state()["at"] > before)
        running.set(hung=False)
        running.looked()
        state = running.state()
        assert not state["findings"] and not state["past"], state
