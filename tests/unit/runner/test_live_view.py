import io
from pathlib import Path

import pytest

from vllm_ansible.cli.live_view import LiveView
from vllm_ansible.runner import (
    AnyEvent,
    Endpoint,
    Evidence,
    Failure,
    Outcome,
    Progress,
    RunFailure,
    StageEnded,
    StageStarted,
    TaskResult,
    Warned,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that moves a second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def shown(*events: AnyEvent, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    view = LiveView(out, Clock())
    for event in events:
        view.show(event)
    return out.getvalue()


def task(host: str, status: str = "ok") -> TaskResult:
    return TaskResult(stage="weights", task="Look", host=host, status=status, seconds=1)


def progress(done: int) -> Progress:
    return Progress(
        stage="weights", task="t", text="spreading", done=done, total=163, unit="shards"
    )


BEGIN = StageStarted(stage="weights")
END = StageEnded(stage="weights", seconds=372, ok=True)


def found(host: str, summary: str) -> Evidence:
    return Evidence(stage="weights", host=host, gate="weights", summary=summary)


def test_a_stage_is_one_line_with_its_evidence_and_its_time() -> None:
    lines = shown(BEGIN, task("a"), found("a", "412 GB"), found("b", "412 GB"), END).splitlines()
    assert lines == [" weights    412 GB" + " " * 54 + "6 m 12 s"]


def test_hosts_that_differ_are_named() -> None:
    lines = shown(BEGIN, found("a", "3 GB/s"), found("b", "1 GB/s"), END).splitlines()
    assert [line.split("  6 m")[0].strip() for line in lines] == [
        "weights    a: 3 GB/s",
        "b: 1 GB/s",
    ]


def test_a_stage_without_evidence_says_what_it_changed() -> None:
    assert "2 hosts, 1 changed" in shown(BEGIN, task("a"), task("b", "changed"), END)
    assert "1 host, nothing to change" in shown(BEGIN, task("a"), END)


def test_a_log_gets_a_line_of_progress_now_and_then() -> None:
    lines = shown(BEGIN, *(progress(done) for done in range(25))).splitlines()
    assert [line.split()[-4:] for line in lines] == [
        [str(done), "of", "163", "shards"] for done in (0, 10, 20)
    ]


def test_a_terminal_has_one_line_written_over() -> None:
    text = shown(BEGIN, *(progress(done) for done in range(5)), END, out=Terminal())
    assert text.count("\n") == 1
    assert "\r\x1b[K weights    spreading   4 of 163 shards" in text
    assert max(len(part) for part in text.split("\r\x1b[K")) <= 81


def test_a_warning_stands_alone() -> None:
    assert shown(Warned(text="slow disk", host="a")).splitlines() == [" warning    a: slow disk"]


def test_a_failure_says_what_and_where_and_what_mends_it() -> None:
    out = io.StringIO()
    view = LiveView(out)
    view.show(BEGIN)
    view.show(StageEnded(stage="weights", seconds=51.3, ok=False))
    view.failure(
        RunFailure(
            "The copy stopped",
            stage="weights",
            host="a",
            expected="163 shards",
            found="118 shards",
            cause="the disk is full",
            fix="make room",
            command="uv pip sync",
            run_dir=Path("runs/1"),
            failures=[
                Failure(stage="weights", host=host, task="t", message="m") for host in ("a", "b")
            ],
        )
    )
    lines = out.getvalue().splitlines()
    assert lines[0].startswith(" weights    a: The copy stopped")
    assert lines[0].endswith("51 s")
    assert [line.split(maxsplit=1) for line in lines[1:]] == [
        ["expected", "163 shards"],
        ["found", "118 shards"],
        ["others", "b"],
        ["cause", "the disk is full"],
        ["fix", "make room"],
        ["command", "uv pip sync"],
        ["record", "runs/1"],
    ]


def test_the_end_says_where_the_models_answer() -> None:
    out = io.StringIO()
    LiveView(out).outcome(Outcome(True, 0, Path("runs/1"), [Endpoint("http://a/v1", "r1", "/k")]))
    assert out.getvalue().splitlines() == [
        " endpoint   http://a/v1 r1",
        " key        /k",
        " done       nothing changed; its record is runs/1",
    ]
