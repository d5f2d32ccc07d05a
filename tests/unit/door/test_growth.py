"""Two doors under a steady load hold no more memory and no more descriptors as time goes by.

For an hour: DOOR_SOAK_SECONDS=3600 pytest -s -m soak tests/unit/door/test_growth.py
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from .running import ALICE, HAPROXY, ROLE, Running
from .test_two_doors import Doors, worker_of

SECONDS = float(os.environ.get("DOOR_SOAK_SECONDS", "120"))
# Each thread asks, reads the answer, and waits: two of them make some 12 requests a second.
PAUSE = 0.15
# What the first quarter needs to warm up is no growth. Lua's collector lets memory swing.
MOST_GROWTH = 0.02
MOST_MORE_DESCRIPTORS = 4
PAGE = os.sysconf("SC_PAGE_SIZE")
ASKED = [
    ("carol", {}, 200),
    ("carol", {"stream": True}, 200),
    (ALICE, {}, 429),
    ("unknown", {}, 401),
    ("carol", {"model": "none"}, 404),
]
# What a door reads of a client that asks another one alone, a hundred times a minute for a day.
READS = """
local counts = require("counts")
local source, now, kept = counts.source(".other"), 1796200000, 0
counts.clock = function() return now end
for minute = 1, 1440 do
  local lines = {}
  for number = 1, 100 do lines[number] = ("%.3f a alice 1 7 3 0 m"):format(now + number * 0.6) end
  now = now + 60
  counts.take(source, table.concat(lines, "\\n") .. "\\n")
end
for place in pairs(source.requests.alice) do
  if type(place) == "number" then kept = kept + 1 end
end
core.Alert(("tokens %d, requests kept %d"):format(source.tokens.alice, kept))
"""


def held(pid: int) -> tuple[int, int]:
    """Return how many KiB and descriptors a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * PAGE // 1024, len(os.listdir(f"/proc/{pid}/fd"))


def ask(door: Running, over: threading.Event, wrong: list[str], asked: list[int]) -> None:
    for key, body, wanted in itertools.cycle(ASKED):
        if over.is_set():
            return
        try:
            status = door.chat(key, max_tokens=3, **body)[0]
            # Until the tokens of a day are used up, what is refused then is answered.
            if status != wanted and (key, status) != (ALICE, 200):
                wrong.append(f"{key} {body}: {status}")
        except OSError as error:
            wrong.append(f"{key} {body}: {error}")
        asked.append(1)
        over.wait(PAUSE)


def quarters(values: list[int]) -> tuple[float, float]:
    """Return the middle of the second quarter and of the last one."""
    part = len(values) // 4
    return statistics.median(values[part : 2 * part]), statistics.median(values[-part:])


@pytest.mark.soak
def test_memory_and_descriptors_do_not_grow(tmp_path: Path) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with ExitStack() as stack:
        doors = Doors(tmp_path, stack)
        over, wrong, asked = threading.Event(), list[str](), list[int]()
        users = [
            threading.Thread(target=ask, args=(door, over, wrong, asked)) for door in doors.both
        ]
        pids = [worker_of(door) for door in doors.both]
        rows: list[list[tuple[int, int]]] = []
        end = time.monotonic() + SECONDS
        for user in users:
            user.start()
        try:
            while time.monotonic() < end:
                rows.append([held(pid) for pid in pids])
                time.sleep(max(0.5, SECONDS / 240))
        finally:
            over.set()
            for user in users:
                user.join()
        assert [worker_of(door) for door in doors.both] == pids
    print(f"{SECONDS:.0f} s, {len(asked)} requests, {len(wrong)} not as expected")
    assert not wrong, wrong[:5]
    for number in range(len(pids)):
        memory = quarters([row[number][0] for row in rows])
        descriptors = quarters([row[number][1] for row in rows])
        print(f"door {number}: KiB {memory}, descriptors {descriptors}")
        assert memory[1] <= memory[0] * (1 + MOST_GROWTH), memory
        assert descriptors[1] <= descriptors[0] + MOST_MORE_DESCRIPTORS, descriptors


def test_requests_at_another_door_are_kept_for_a_minute(tmp_path: Path) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    (tmp_path / "reads.lua").write_text(READS)
    settings = tmp_path / "haproxy.cfg"
    program = f"lua-prepend-path {ROLE}/files/program/?.lua"
    settings.write_text(f"global\n  {program}\n  lua-load {tmp_path}/reads.lua\n")
    done = subprocess.run(
        [HAPROXY, "-c", "-f", settings], capture_output=True, text=True, check=False
    )
    found = re.search(r"tokens (\d+), requests kept (\d+)", done.stderr)
    assert found, done.stderr
    assert int(found[1]) == 1440 * 100 * 10
    assert 0 < int(found[2]) <= 101
