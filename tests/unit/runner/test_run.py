"""Real runs: ansible-runner, ansible-playbook and the record, on a small checkout."""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vllm_ansible.runner import (
    AnyEvent,
    Endpoint,
    Evidence,
    RefusedInput,
    RunEnded,
    RunFailure,
    RunStarted,
    StageEnded,
    StageStarted,
    TaskResult,
    run,
    stream,
)

SECRET = "hunter22-not-for-others"  # noqa: S105 - it stands for a secret


@pytest.fixture(autouse=True)
def private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test its own directory for temporary files, to see what is left there."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    return scratch


def test_a_run_streams_its_events_and_returns_its_outcome(
    checkout: Path, private_tmp: Path
) -> None:
    events: list[AnyEvent] = []
    seen: list[str] = []

    def watch(event: AnyEvent) -> None:
        events.append(event)
        if isinstance(event, RunStarted):
            files = [path for path in private_tmp.rglob("*") if path.is_file()]
            seen.extend(str(path) for path in files if SECRET.encode() in path.read_bytes())
            seen.extend(
                entry.name for entry in private_tmp.iterdir() if entry.stat().st_mode & 0o77
            )
            seen.extend(_command_lines_with(SECRET))

    outcome = run(
        "two",
        checkout=checkout,
        extra_vars={"secret_token": SECRET, "change": True},
        on_event=watch,
    )

    kinds = [type(event) for event in events]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunEnded
    assert [event.stage for event in events if isinstance(event, StageStarted)] == [
        "prepare",
        "serve",
    ]
    assert all(event.ok for event in events if isinstance(event, StageEnded))
    assert sum(isinstance(event, TaskResult) for event in events) == 8
    assert outcome.evidence == [event for event in events if isinstance(event, Evidence)]
    assert outcome.changed == 2, "the extra variable did not arrive"
    assert outcome.endpoints == [Endpoint("http://10.0.0.1:8000/v1", "r1", "/k")]
    assert outcome.run_dir.parent == checkout / "runs"
    assert (outcome.run_dir / "events.jsonl").is_file()
    assert seen == [], "a secret could be read while the run went on"
    assert list(private_tmp.iterdir()) == []


def test_a_failing_run_raises_what_a_person_needs(checkout: Path) -> None:
    with pytest.raises(RunFailure) as raised:
        run("two", "playbooks/failing.yml", checkout=checkout)
    failure = raised.value
    assert failure.message == "The engine died while loading"
    assert (failure.stage, failure.expected, failure.found) == ("serve", "163 shards", "118 shards")
    assert (failure.cause, failure.fix) == ("the disk is full", "make room")
    assert failure.command == "vllm serve /models/r1"
    assert {item.host for item in failure.failures} == {"gh-01", "gh-02"}


def test_a_tag_that_no_play_has_is_refused_before_anything_starts(checkout: Path) -> None:
    with pytest.raises(RefusedInput) as refused:
        run("two", checkout=checkout, tags=["prepare,sreve"])
    assert str(refused.value) == ("no tag of site.yml is called sreve (tags): did you mean serve?")
    assert not (checkout / "runs").exists()


def test_an_inventory_that_cannot_be_read_is_told_in_ansibles_words(checkout: Path) -> None:
    (checkout / "inventories" / "two" / "hosts.yml").write_text("gpu: [")
    with pytest.raises(RunFailure, match="before its first play") as raised:
        run("two", checkout=checkout)
    assert "hosts.yml" in str(raised.value.found)


def test_a_cancelled_run_ends_in_order(checkout: Path, private_tmp: Path) -> None:
    cancel = threading.Event()
    events: list[AnyEvent] = []

    def watch(event: AnyEvent) -> None:
        events.append(event)
        if isinstance(event, StageStarted):
            cancel.set()

    with pytest.raises(RunFailure) as raised:
        run("two", "playbooks/waiting.yml", checkout=checkout, cancel=cancel, on_event=watch)
    assert raised.value.cancelled
    assert raised.value.stage == "serve"
    assert isinstance(events[-1], RunEnded), "ansible-playbook was killed, not interrupted"
    assert _processes_in(checkout) == []
    assert list(private_tmp.iterdir()) == []


def test_closing_a_stream_stops_its_run(checkout: Path, private_tmp: Path) -> None:
    events = stream("two", "playbooks/waiting.yml", checkout=checkout)
    assert isinstance(next(events), RunStarted)
    assert _processes_in(checkout)
    events.close()
    assert _processes_in(checkout) == []
    assert list(private_tmp.iterdir()) == []


def test_two_runs_of_one_checkout_do_not_take_each_other_for_themselves(checkout: Path) -> None:
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(run, "two", checkout=checkout) for _ in range(2)]
        outcomes = [future.result() for future in both]
    assert len({outcome.run_dir for outcome in outcomes}) == 2
    assert all(len(outcome.evidence) == 4 for outcome in outcomes)


def _processes() -> list[Path]:
    numbers = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [entry for entry in numbers if int(entry.name) != os.getpid()]


def _command_lines_with(text: str) -> list[str]:
    """Return the command lines on this machine that hold a text, as any user can read them."""
    found = []
    for process in _processes():
        with contextlib.suppress(OSError):  # it may end meanwhile
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            found += [line] if text in line else []
    return found


def _processes_in(directory: Path) -> list[str]:
    """Return the processes at work in a directory: ansible-playbook and the modules it started."""
    found = []
    for process in _processes():
        with contextlib.suppress(OSError):
            if (process / "cwd").resolve(strict=True).is_relative_to(directory):
                found.append((process / "cmdline").read_text())
    return found
