"""What hosts report, added up; and how long silence lasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.record.host_progress import (
    ClusterLine,
    HostProgress,
    Rate,
    Silence,
    add_up,
    describe,
    of_bar,
)


def test_hosts_are_added_up_in_the_unit_most_of_them_use() -> None:
    reports = [
        HostProgress("a", 50.0, 100.0, "bytes"),
        HostProgress("b", 20.0, 100.0, "bytes"),
        HostProgress("c", 1.0, 2.0, "shards"),
    ]
    cluster = add_up(reports, ["a", "b", "c", "d"])
    assert (cluster.done, cluster.total, cluster.unit) == (70.0, 200.0, "bytes")
    assert (cluster.finished, cluster.hosts) == (0, 4)
    assert cluster.slowest == HostProgress("d")


def test_a_total_that_one_host_does_not_know_is_not_invented() -> None:
    reports = [HostProgress("a", 5.0, 10.0, "shards"), HostProgress("b", 5.0, None, "shards")]
    assert add_up(reports, ["a", "b"]).total is None


def test_reports_of_hosts_that_do_not_take_part_do_not_count() -> None:
    assert add_up([HostProgress("gone", 1.0, 1.0, "bytes", finished=True)], ["a"]).finished == 0


@pytest.mark.parametrize(
    ("reports", "rate", "text"),
    [
        (
            [
                HostProgress("a", 900e6, 1e9, "bytes"),
                HostProgress("b", 100e6, 1e9, "bytes"),
            ],
            100e6,
            "0 of 2 hosts done, slowest b (10%), 100.0 MB/s, 10 s left",
        ),
        (
            [HostProgress("a", finished=True), HostProgress("b", text="resolving")],
            None,
            "1 of 2 hosts done, b: resolving",
        ),
        ([HostProgress("a")], None, "0 of 2 hosts done, a: not started"),
        (
            [HostProgress("a", finished=True), HostProgress("b", finished=True)],
            None,
            "2 of 2 hosts done",
        ),
    ],
)
def test_the_line_says_who_is_behind(
    reports: list[HostProgress], rate: float | None, text: str
) -> None:
    assert describe(add_up(reports, ["a", "b"]), rate) == text


def test_one_host_speaks_for_itself() -> None:
    assert describe(add_up([HostProgress("a", text="step 4")], ["a"]), None) == "step 4"


def test_a_rate_is_measured_over_the_last_moments() -> None:
    rate = Rate()
    assert rate.add(0.0, 0.0) is None
    assert rate.add(1.0, 10.0) is None  # too early to say
    assert rate.add(10.0, 100.0) == 10.0
    assert rate.add(100.0, 100.0) is None  # nothing moved for a while
    assert rate.add(104.0, 140.0) == 10.0
    assert rate.add(105.0, 0.0) is None  # it began anew


def test_silence_counts_from_the_last_movement() -> None:
    silence = Silence(60, now=0)
    silence.observe({"done": 1}, 10)
    assert silence.observe({"done": 1}, 65) == 55
    assert not silence.broken(70)
    assert silence.broken(71)
    assert silence.observe({"done": 2}, 72) == 0
    assert not silence.broken(100)


class Display:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, line: str, **_: Any) -> None:
        self.lines.append(line)


def test_one_worker_prints_and_another_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("VLLM_ANSIBLE_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("VLLM_ANSIBLE_CONSOLE", raising=False)
    first, second = Display(), Display()
    lines = {
        host: ClusterLine(tmp_path, "weights", ["a", "b"], display, key="k")
        for host, display in (("a", first), ("b", second))
    }
    lines["a"].report("a", 1, 4, "shards")
    lines["b"].report("b", 1, 4, "shards")
    assert first.lines == [" weights    0 of 2 hosts done, b: not started   1 of 4 shards"]
    assert second.lines == []
    lines["a"].report("a", 4, 4, "shards", finished=True)
    assert first.lines[-1] == " weights    1 of 2 hosts done, slowest b (25%)   5 of 8 shards"
    lines["b"].report("b", 4, 4, "shards", finished=True)
    assert second.lines == [" weights    2 of 2 hosts done   8 of 8 shards"]
    events = (tmp_path / "run/events.jsonl").read_text().splitlines()
    last = json.loads(events[-1])
    assert (last["event"], last["done"], last["total"]) == ("progress", 8, 8)


def test_a_host_that_ends_while_another_prints_its_end_is_counted(tmp_path: Path) -> None:
    lines = {}

    class Meanwhile(Display):
        """The other host ends while this line is printed, so it finds the pen taken."""

        def display(self, line: str, **_: Any) -> None:
            super().display(line)
            if len(self.lines) == 1:
                lines["b"].report("b", finished=True)

    first, second = Meanwhile(), Display()
    for host, display in (("a", first), ("b", second)):
        lines[host] = ClusterLine(tmp_path, "weights", ["a", "b"], display, key="k")
    lines["a"].report("a", finished=True)
    assert second.lines == []
    assert first.lines[-1] == " weights    2 of 2 hosts done"


def test_the_last_host_is_counted_though_another_is_just_about_to_let_it_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Display()
    a, b = (ClusterLine(tmp_path, "weights", ["a", "b"], display, key="k") for _ in "ab")
    put_down = a.close

    def close() -> None:
        monkeypatch.undo()
        b.report("b", finished=True)  # it cannot print: the line is still the other's
        put_down()

    a.report("a", text="fetches")
    monkeypatch.setattr(a, "close", close)
    a.report("a", finished=True)
    assert "2 of 2 hosts done" in display.lines[-1]


def test_what_has_nothing_to_say_prints_no_line(tmp_path: Path) -> None:
    display = Display()
    line = ClusterLine(tmp_path, "weights", ["a"], display, key="k")
    line.report("a")
    line.report("a", text="begins")
    line.report("a", finished=True)
    assert display.lines == [" weights    begins"]


def test_reports_of_an_earlier_task_with_the_label_do_not_count(tmp_path: Path) -> None:
    old = ClusterLine(tmp_path, "weights", ["a", "b"], Display(), key="old")
    old.report("b", finished=True)
    display = Display()
    new = ClusterLine(tmp_path, "weights", ["a", "b"], display, key="new")
    new.report("a", text="begins")
    assert display.lines == [" weights    0 of 2 hosts done, a: begins"]


def test_of_what_a_program_prints_its_count_alone_is_shown() -> None:
    lines = {
        "  0%|          | 0/8 [00:00<?, ?it/s]": (0, 8),
        " 25%|██▌       | 2/8 [00:03<00:11,  1.99s/it]": (2, 8),
        "100%|██████████| 8/8 [00:13<00:00,  1.66s/it]": (8, 8),
    }
    for line, (done, total) in lines.items():
        assert of_bar(line, "answers") == {"done": done, "total": total, "unit": "answers"}
    for line in (
        "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
        "Namespace(subparser='bench', request_rate=inf, sizes=['1/2'], num_prompts=8)",
        "  0%|          |",
        "",
    ):
        assert of_bar(line, "answers") == {}
