"""Lines fit the console, and numbers read as people say them."""

from __future__ import annotations

import pytest

from vllm_ansible import terminal as console
from vllm_ansible.record.progress import Progress


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (41.2, "41 s"),
        (59.7, "1 m 00 s"),
        (372, "6 m 12 s"),
        (3599.8, "1 h 00 m"),
        (7260, "2 h 01 m"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text


def test_bytes_come_in_the_size_that_reads_best() -> None:
    assert console.amount(412_000_000_000, "bytes") == "412.0 GB"
    assert console.amount(12, "bytes") == "12 bytes"
    assert console.amount(118, "shards") == "118 shards"


def test_a_progress_line_says_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(console.VARIABLE, raising=False)
    line = console.progress_line("weights", "fetching", 412e9, 689e9, "bytes")
    assert line == " weights    fetching   412.0 GB of 689.0 GB"
    assert console.progress_line("serve", "profiling", None, None, "") == " serve      profiling"


def test_a_stage_line_ends_at_the_right_edge_and_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = console.stage_line("verify", "words " * 20, "6 m 12 s")
    assert len(lines[0]) == 60
    assert lines[0].endswith("6 m 12 s")
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(lines).count("words") == 20


def test_a_command_is_not_broken_inside_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    option = "--distributed-executor-backend=ray-over-several-hosts"
    assert any(option in line for line in console.labelled("command", f"vllm serve {option}"))


class _Display:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, line: str, **_: object) -> None:
        self.lines.append(line)


def test_progress_is_not_repeated_but_a_new_phase_and_the_end_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(console.VARIABLE, raising=False)
    monkeypatch.delenv("VLLM_ANSIBLE_RUN_DIR", raising=False)
    display = _Display()
    progress = Progress(display, "serve", "Load")
    for done in (1, 1, 2, 3):
        progress.show("loading", done, 3, "shards", phase="loading")
    progress.show("profiling", phase="profiling")
    assert [line.split(maxsplit=1)[1] for line in display.lines] == [
        "loading   1 of 3 shards",
        "loading   3 of 3 shards",
        "profiling",
    ]
