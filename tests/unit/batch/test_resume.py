"""Runs that were cut short, and the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.emulators.chat_server import STALL, ChatServer
from vllm_ansible.batch.command import main
from vllm_ansible.batch.prompts import PromptFile

from .conftest import Batch

PROMPTS = 60


@pytest.fixture
def cut_short(batch: Batch) -> Callable[[ChatServer, int], int]:
    """Start a run of its own process, and end it by a signal in the middle."""

    def cut(server: ChatServer, number: int) -> int:
        command = [sys.executable, "-m", "vllm_ansible.console", "send", *batch.arguments(server)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as sender:
            while sum(server.asked.values()) < PROMPTS // 2:
                assert sender.poll() is None, sender.communicate()
                time.sleep(0.01)
            os.kill(sender.pid, number)
            sender.communicate(timeout=120)
        return sender.returncode

    return cut


def test_a_killed_run_goes_on_and_says_what_was_sent_twice(
    batch: Batch, cut_short: Callable[[ChatServer, int], int]
) -> None:
    batch.write(*(f"say 4 {number}" for number in range(PROMPTS)))
    # One of them would be in flight for as long as somebody waits for it.
    with ChatServer(faults={"say 4 10": [STALL]}, seconds_a_token=0.01) as server:
        assert cut_short(server, signal.SIGKILL) == -signal.SIGKILL
        kept = batch.records()
        asked = dict(server.asked)
        assert 0 < len(kept) < PROMPTS
        status, found = batch.send(server)
        again = {f"say 4 {number}" for number in range(PROMPTS) if f"a{number}" in kept}
        # What was answered and kept is not asked again.
        assert all(server.asked[text] == 1 for text in again)
    assert (status, found["answered_before"]) == (0, len(kept))
    records = batch.records()
    assert list(records) == [f"a{number}" for number in range(PROMPTS)]
    # One that went out may have been on its way to the server when the sender was killed.
    sent = {f"say 4 {number}": records[f"a{number}"]["sent"] for number in range(PROMPTS)}
    assert all(server.asked[text] <= times <= 2 for text, times in sent.items())
    twice = {text for text, times in sent.items() if times == 2}
    assert 0 < len(twice) <= 4
    assert {text for text, times in server.asked.items() if times == 2} <= twice & set(asked)
    assert not batch.journal.exists()


def test_a_run_that_is_interrupted_ends_in_order(
    batch: Batch, cut_short: Callable[[ChatServer, int], int]
) -> None:
    batch.write(*(f"say 4 {number}" for number in range(PROMPTS)))
    # One of them would be in flight for as long as somebody waits for it.
    with ChatServer(faults={"say 4 10": [STALL]}, seconds_a_token=0.01) as server:
        assert cut_short(server, signal.SIGINT) == 1
        # The server was told: it does not work for nobody.
        deadline = time.monotonic() + 60
        while server.in_flight:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert server.given_up
        assert batch.send(server)[0] == 0
    assert len(batch.records()) == PROMPTS


def test_an_interrupt_while_files_are_read_is_told_in_a_line(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    batch.write("say 1 x")
    monkeypatch.setattr(PromptFile, "digests", interrupted)
    with ChatServer() as server:
        assert main(batch.arguments(server)) == 1
    assert "stopped by a signal" in batch.capsys.readouterr().err


def test_a_line_cut_in_the_middle_is_not_an_answer(batch: Batch) -> None:
    batch.write("say 1 x", "say 1 y", "say 1 z")
    with ChatServer() as server:
        batch.send(server)
        lines = batch.output.read_text().splitlines(keepends=True)
        batch.output.write_text(lines[0] + lines[1][:40])
        batch.journal.write_text('"a0"\n"a1"\n"a')
        status, found = batch.send(server)
        assert (status, found["answered_before"], found["answered"]) == (0, 1, 2)
        assert server.asked == {"say 1 x": 1, "say 1 y": 2, "say 1 z": 2}
    assert batch.records()["a1"]["sent"] == 2


def test_a_disk_that_is_full_loses_no_answer_that_was_kept(batch: Batch) -> None:
    batch.write(*(f"say 4 {number}" for number in range(PROMPTS)))
    with ChatServer() as server:
        command = [sys.executable, "-m", "vllm_ansible.console", "send", *batch.arguments(server)]
        full = subprocess.run(
            ["prlimit", "--fsize=8192", *command], capture_output=True, text=True, check=False
        )
        assert full.returncode == 1
        assert "File too large" in full.stderr
        assert "Traceback" not in full.stderr
        status, found = batch.send(server)
        assert (status, found["failed"]) == (0, 0)
        assert found["answered_before"] > 5
    assert len(batch.records()) == PROMPTS


def test_a_complete_run_sends_nothing_more(batch: Batch) -> None:
    batch.write("say 1 x")
    with ChatServer() as server:
        batch.send(server)
        before = batch.output.read_text()
        assert batch.send(server)[1]["answered"] == 0
        assert sum(server.asked.values()) == 1
    assert batch.output.read_text() == before


def test_new_prompts_are_added_and_those_of_before_are_kept(batch: Batch) -> None:
    batch.write("say 1 x")
    with ChatServer() as server:
        batch.send(server)
        batch.write("say 1 x", "say 1 y")
        assert batch.send(server)[1]["answered_before"] == 1
    assert list(batch.records()) == ["a0", "a1"]


@pytest.mark.parametrize("texts", [("say 2 x",), ("say 1 y", "say 1 x")])
def test_answers_to_other_prompts_are_never_mixed_in(batch: Batch, texts: tuple[str, ...]) -> None:
    batch.write("say 1 x", "say 1 y", "say 1 z")
    with ChatServer() as server:
        batch.send(server)
        before = batch.output.read_text()
        batch.write(*texts)
        assert main(batch.arguments(server)) == 2
        assert sum(server.asked.values()) == 3
    assert "give another --output" in batch.capsys.readouterr().err
    assert batch.output.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        '{"notes": 1}\n',
        "no line end",
        '[{"tag": "a0"}]',
        '{"tag": "a0", "prompt": "x"}',
        '{"tag": "a0", "prompt": "x"}\n{"tag": "a1", "prompt": "y"}',
    ],
)
@pytest.mark.parametrize("ending", ["", ".sent"])
def test_a_file_of_something_else_is_left_alone(batch: Batch, text: str, ending: str) -> None:
    batch.write("say 1 x")
    path = batch.output.with_name(batch.output.name + ending)
    path.write_text(text)
    with ChatServer() as server:
        assert main(batch.arguments(server)) == 2
    assert path.read_text() == text


def test_a_last_line_that_only_lacks_its_end_is_an_answer(batch: Batch) -> None:
    batch.write("say 1 x", "say 1 y")
    with ChatServer() as server:
        batch.send(server)
        lines = batch.output.read_text().splitlines(keepends=True)
        batch.output.write_text(lines[0].rstrip("\n"))
        assert batch.send(server)[1]["answered_before"] == 1
        assert server.asked == {"say 1 x": 1, "say 1 y": 2}
    assert list(batch.records()) == ["a0", "a1"]


def test_one_run_at_a_time_has_the_answers(batch: Batch) -> None:
    batch.write(*(f"say 4 {number}" for number in range(PROMPTS)))
    with ChatServer(seconds_a_token=0.01) as server:
        server.go_on.clear()
        # A second one that is let in waits for answers, too: it fails then, and does not hang.
        late = threading.Timer(60, server.go_on.set)
        late.start()
        command = [sys.executable, "-m", "vllm_ansible.console", "send", *batch.arguments(server)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
            while not server.asked:
                assert first.poll() is None
                time.sleep(0.01)
            assert main([*batch.arguments(server), "--json"]) == 2
            late.cancel()
            server.go_on.set()
            assert "another run" in json.loads(batch.capsys.readouterr().out)["refused"]
            first.communicate(timeout=120)
        assert first.returncode == 0
        assert set(server.asked.values()) == {1}
