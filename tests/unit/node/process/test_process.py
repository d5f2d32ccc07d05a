"""What a process is, and what must happen to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.launcher import stat_of
from vllm_ansible.node.process import process
from vllm_ansible.node.process.process import (
    Files,
    Look,
    ProcessError,
    changes,
    decide,
    digest,
    empty_records,
    read_json,
    save,
    spec,
)
from vllm_ansible.node.process.processes import looks

BASE: dict[str, Any] = {
    "argv": ["vllm", "serve", 8000],
    "environment": {"A": 1},
    "depends": {"lock": {"vllm": "0.32.0"}},
    "limits": {"nofile": 65536, "memlock": None},
    "user": "vllm",
}


def test_the_digest_does_not_depend_on_types_that_ansible_changes() -> None:
    as_text = {**BASE, "argv": ["vllm", "serve", "8000"], "environment": {"A": "1"}}
    assert digest(spec(BASE)) == digest(spec({**as_text, "limits": {"nofile": "65536"}}))


def test_the_digest_does_not_depend_on_the_order_of_names() -> None:
    one = spec({**BASE, "environment": {"A": "1", "B": "2"}})
    other = spec({**BASE, "environment": {"B": "2", "A": "1"}})
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"argv": ["vllm", "serve", "8001"]}, "argv: 8000 -> 8001"),
        ({"argv": ["serve", "vllm", "8000"]}, "argv: vllm serve 8000 -> serve vllm 8000"),
        ({"environment": {}}, "environment A: 1 -> unset"),
        ({"environment": {"A": "1", "B": "2"}}, "environment B: unset -> 2"),
        (
            {"depends": {"lock": {"vllm": "0.33.0"}}},
            'depends lock: {"vllm": "0.32.0"} -> {"vllm": "0.33.0"}',
        ),
        ({"limits": {"nofile": "1"}}, "limits nofile: 65536 -> 1"),
        ({"user": None}, "user: vllm -> unset"),
    ],
)
def test_each_change_is_named_and_changes_the_digest(change: dict[str, Any], named: str) -> None:
    old, new = spec(BASE), spec({**BASE, **change})
    assert changes(old, new) == [named]
    assert digest(old) != digest(new)


RUNS = Look(running=True)
DIED = Look(running=False, why="it ended with exit status 1")
LEFT = Look(running=False, leftovers=(7,))
GONE = Look(running=False)
OLD = spec(BASE)
NEW = spec({**BASE, "user": "other"})


@pytest.mark.parametrize(
    ("look", "old", "new", "state", "action"),
    [
        (GONE, None, NEW, "started", "start"),
        (DIED, OLD, OLD, "started", "start"),
        (DIED, OLD, NEW, "started", "start"),
        (LEFT, OLD, OLD, "started", "start"),
        (RUNS, OLD, OLD, "started", "none"),
        (RUNS, OLD, NEW, "started", "restart"),
        (RUNS, None, NEW, "started", "restart"),
        (RUNS, OLD, None, "stopped", "stop"),
        (LEFT, OLD, None, "stopped", "stop"),
        (GONE, OLD, None, "stopped", "none"),
        (GONE, None, None, "stopped", "none"),
        (RUNS, OLD, None, "absent", "remove"),
        (GONE, OLD, None, "absent", "remove"),
        (LEFT, None, None, "absent", "remove"),
        (GONE, None, None, "absent", "none"),
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
def test_one_action_leads_to_what_is_wanted(
    look: Look, old: Any, new: Any, state: str, action: str, allowed: bool
) -> None:
    decision = decide(look, old, new, state, allowed)
    assert decision.action == action
    assert decision.refused == (action == "restart" and not allowed)
    assert decision.reason


def test_a_start_without_a_command_is_refused() -> None:
    with pytest.raises(ProcessError, match="argv"):
        decide(GONE, None, None, "started", False)


@pytest.mark.parametrize("content", ["", "\n", "\0" * 512])
def test_a_record_that_a_power_failure_left_empty_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "processes").mkdir()
    record = tmp_path / "processes/chat-serve.json"
    record.write_text(content)
    assert read_json(str(record)) is None
    assert looks(str(tmp_path), "r1", lambda *_: pytest.fail("nothing is asked")) == {}
    assert empty_records(str(tmp_path)) == [str(record)]


def test_a_record_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("name"), replace(*paths)))
    (tmp_path / "processes").mkdir()
    save(Files(str(tmp_path), "chat-serve"), {"engine": "chat"})
    assert done == ["fsync", "name"]


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(ProcessError, match="not valid JSON"):
        read_json(str(tmp_path / "record.json"))


def test_a_process_that_does_not_exist_has_no_facts() -> None:
    assert stat_of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
        (137, "was killed by signal 9 (SIGKILL)"),
        (139, "was killed by signal 11 (SIGSEGV)"),
        (255, "ended with exit status 255"),
    ],
)
def test_a_signal_is_named(status: int, words: str) -> None:
    assert process.ending(status) == words


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("it was killed", "a-serve was killed"),
        ("its last start was interrupted", "a-serve does not run: its last start was interrupted"),
        ("", "a-serve does not run"),
    ],
)
def test_a_process_without_an_exit_status_says_why_it_ended(why: str, words: str) -> None:
    assert process.told("a-serve", why) == words
