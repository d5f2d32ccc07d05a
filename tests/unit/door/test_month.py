"""Tokens of a month: over days, restarts and doors, by a clock that the test sets."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .running import ALICE, HAPROXY, ROLE, Running, client, wait_until
from .test_two_doors import Doors

DAY = 86400
NOON = datetime(2026, 12, 15, 12, tzinfo=UTC).timestamp()
# Each answer of the engine costs 10 tokens: 7 of the prompt and 3 of the answer.
BODY = {"max_tokens": 3}
# A worker that has not written all when its day ends, and the one after it.
MIDNIGHT = """
local now = %d
os.time = function() return now end
local function worker()
  for _, name in ipairs({ "counts", "journal", "month" }) do package.loaded[name] = nil end
  local counts = require("counts")
  counts.clock = os.time
  require("journal").directory = "%s"
  return counts
end
local first = worker()
first.tokens_today("alice")
first.charge(first.of("alice", "m"), 7, 3)
now = now + 86400
first.tokens_today("alice")
first.flush(first.of("alice", "m"))
local second = worker()
local early, late = first.tokens_this_month("alice"), second.tokens_this_month("alice")
local today = second.tokens_today("alice")
core.Alert(("month %%d, then %%d, of which today %%d"):format(early, late, today))
"""


class Clock:
    """The door's program with a clock of its own, in the middle of a month."""

    def __init__(self, directory: Path) -> None:
        self.program, self.file = directory / "program", directory / "clock"
        shutil.copytree(ROLE / "files/program", self.program)
        self.set(NOON)
        start = self.program / "start.lua"
        start.write_text(
            "local real = os.time\nos.time = function()\n"
            f'  local file = io.open("{self.file}", "r")\n'
            '  local ahead = file:read("n")\n  file:close()\n  return real() + ahead\nend\n'
            + start.read_text()
        )

    def set(self, moment: float) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(str(int(moment - time.time())))
        new.replace(self.file)


def statuses(door: Running, number: int) -> list[int]:
    return [door.chat(ALICE, **BODY)[0] for _ in range(number)]


def test_tokens_of_a_month_hold_to_the_token_over_days_and_restarts(
    door: Callable[..., Running], tmp_path: Path
) -> None:
    clock = Clock(tmp_path)
    journals = tmp_path / "journals"
    journals.mkdir()
    # As a release without models wrote it, as this one does, torn, and of another month.
    (journals / "2026-12-01.journal").write_text("1796200000.1 a alice 1 30 10\n")
    (journals / "2026-12-03.journal").write_text(
        "1796300000.1 a alice 1 4 6 2 m\n1796300000.2 a alice 1 7 1?\n"
        "1796300000.3 a alice 1 7 30 0 m?\n1796300000.4 a alice 1 7"
    )
    (journals / "2026-11-30.journal").write_text("1796000000.1 a alice 1 3000 10\n")
    alice = client(ALICE, tokens_per_month=80)
    running = door(clients={"alice": alice}, door_program=clock.program)
    assert statuses(running, 2) == [200, 200]
    running.stop(signal.SIGKILL)
    running.start()
    assert statuses(running, 2) == [200, 429]
    _, text, headers = running.chat(ALICE, **BODY)
    error = json.loads(text)["error"]
    assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert "the 80 tokens of this month (UTC) are used up" in error["message"]
    assert 16 * DAY < int(headers["retry-after"]) <= 17 * DAY

    # The next day, also for a worker that begins on it, and the next month.
    clock.set(NOON + DAY)
    assert statuses(running, 1) == [429]
    wait_until(lambda: (journals / "2026-12-16.month").exists())
    running.stop(signal.SIGTERM)
    running.start()
    assert statuses(running, 1) == [429]
    clock.set(NOON + 17 * DAY)
    assert statuses(running, 9) == [200] * 8 + [429]


def test_a_month_counts_what_other_doors_have_counted_before(tmp_path: Path) -> None:
    """One of them has no copy of it: it was not there."""
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    clock = Clock(tmp_path)
    (tmp_path / "two/journals").mkdir(parents=True)
    own = tmp_path / "two/journals/2026-12-02.journal"
    own.write_text("1796200000.1 a alice 5 30 10 0 m\n")
    with ExitStack() as stack:
        clients = {"alice": client(ALICE, tokens_per_month=60)}
        doors = Doors(tmp_path, stack, clients=clients, door_program=clock.program)
        one, two = doors.both
        copy = one.journals / "2026-12-15.month.door1"
        wait_until(lambda: copy.exists() and "alice 40" in copy.read_text())
        assert statuses(one, 2) == [200, 200]
        assert statuses(one, 1) == [429]
        wait_until(lambda: doors.copied(1))
        wait_until(lambda: statuses(two, 1) == [429])


def test_what_is_not_written_at_midnight_counts_once(tmp_path: Path) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    (tmp_path / "midnight.lua").write_text(MIDNIGHT % (NOON, tmp_path))
    settings = tmp_path / "haproxy.cfg"
    program = f"lua-prepend-path {ROLE}/files/program/?.lua"
    settings.write_text(f"global\n  {program}\n  lua-load {tmp_path}/midnight.lua\n")
    done = subprocess.run(
        [HAPROXY, "-c", "-f", settings], capture_output=True, text=True, check=False
    )
    assert "month 10, then 10, of which today 0" in done.stderr
    assert "alice 0 7 3 0 m" in (tmp_path / "2026-12-15.journal").read_text()


def test_a_file_that_cannot_be_read_at_midnight_does_not_end_the_door(tmp_path: Path) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    clock = Clock(tmp_path)
    with ExitStack() as stack:
        clients = {"alice": client(ALICE, tokens_per_month=40)}
        doors = Doors(tmp_path, stack, clients=clients, door_program=clock.program)
        one, two = doors.both
        assert statuses(one, 2) == [200, 200]
        wait_until(lambda: doors.copied(1))
        copy = two.journals / "2026-12-15.journal.door0"
        copy.unlink()
        copy.mkdir()
        clock.set(NOON + DAY)
        assert statuses(two, 2) == [200, 200]
        assert "the counting goes on after an error" in two.log.read_text()
        # Also for a worker that begins then; what it cannot read itself the other door tells it.
        two.stop(signal.SIGTERM)
        told = two.journals / "2026-12-16.month.door0"
        told.unlink()
        two.start()
        wait_until(lambda: told.exists() and "alice 20\n" in told.read_text())
        assert statuses(two, 1) == [429]
