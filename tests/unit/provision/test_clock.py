"""Turns are kept apart over processes, and a clock that jumps stops nobody."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ansible.provision.clock import Clock


class Time:
    """A time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def clock(time: Time, file: Path) -> Clock:
    return Clock(file, {"request": 1.0, "launch": 12.0}, lambda: time.now, time.sleep)


def test_the_first_turn_is_free_and_the_next_ones_wait(time: Time, tmp_path: Path) -> None:
    ours = clock(time, tmp_path / "deep" / "clock")
    assert [ours.turn("request") for _ in range(3)] == [0.0, 1.0, 1.0]
    assert stat.S_IMODE((tmp_path / "deep" / "clock").stat().st_mode) == 0o600


def test_a_launch_waits_for_both_kinds(time: Time, tmp_path: Path) -> None:
    ours = clock(time, tmp_path / "clock")
    ours.turn("request", "launch")
    assert ours.turn("request") == 1.0
    assert ours.turn("request", "launch") == 11.0


def test_who_comes_later_with_another_clock_waits_behind(time: Time, tmp_path: Path) -> None:
    clock(time, tmp_path / "clock").turn("request")
    assert clock(time, tmp_path / "clock").turn("request") == 1.0


def test_a_turn_is_taken_before_it_is_waited_for(tmp_path: Path) -> None:
    time = Time()
    ahead = Clock(tmp_path / "clock", {"request": 1.0}, lambda: time.now, lambda _: None)
    assert [ahead.turn("request") for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]


def test_a_provider_that_was_asked_too_much_is_left_alone(time: Time, tmp_path: Path) -> None:
    ours = clock(time, tmp_path / "clock")
    ours.hold("request", 30)
    ours.hold("request", 5)
    assert ours.turn("request") == 30.0


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"request": "soon"}', '{"request": 1e12}'])
def test_a_file_that_tells_nothing_stops_nobody(time: Time, tmp_path: Path, text: str) -> None:
    (tmp_path / "clock").write_text(text)
    assert clock(time, tmp_path / "clock").turn("request") == 0.0


def test_processes_at_once_take_turns(tmp_path: Path) -> None:
    """Eight processes ask three times each while time stands still: no turn is given twice."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from vllm_ansible.provision.clock import Clock\n"
        "clock = Clock(Path(sys.argv[1]), {'request': 1.0}, lambda: 1000.0, lambda _: None)\n"
        "for _ in range(3):\n"
        "    print(clock.turn('request'))\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "clock")]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate(timeout=240)[0] for process in running]
    turns = sorted(float(line) for text in said for line in text.splitlines())
    assert turns == [float(number) for number in range(24)]
