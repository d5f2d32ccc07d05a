"""Two doors before the same engines: one client's counts in both, and one door ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.unit.router.client import listens
from vllm_ansible.node.engine import haproxy_door
from vllm_ansible.node.engine.router import ask

from .running import ALICE, HAPROXY, PEER_KEY, Running, client, wait_until

# Each answer of the engine costs 10 tokens: 7 of the prompt and 3 of the answer.
BODY = {"max_tokens": 3}
BOBS = ("bob", "bob2", "bob3")
DAY, MINUTE = 86400, 60
CLIENTS = {
    "alice": client(ALICE, tokens_per_day=60),
    **{name: client(name, requests_per_minute=4) for name in BOBS},
    "carol": client("carol"),
}


class Doors:
    """Two of them, each of which knows the other."""

    def __init__(self, directory: Path, stack: ExitStack, **settings: Any) -> None:
        self.stack, self.both = stack, list[Running]()
        ports = [free_port(), free_port()]
        for number, name in enumerate(("one", "two")):
            (directory / name).mkdir(exist_ok=True)
            other = {"name": f"door{1 - number}", "address": "127.0.0.1"}
            door = Running(
                directory / name,
                engines=self.both[0].engines if self.both else None,
                # The port of the other one, where the role has the same for all.
                door_peers=[other],
                door_port=ports[1 - number],
                **{"clients": CLIENTS, **settings},
            )
            door.port = ports[number]
            self.both.append(stack.enter_context(door))

    def copied(self, number: int) -> bool:
        """Tell whether one door has all that the other one has written of its clients."""
        written = [*self.both[1 - number].journals.glob("*.journal")]
        copies = [self.both[number].journals / f"{one.name}.door{1 - number}" for one in written]
        pairs = [*zip(written, copies, strict=True)]
        return bool(pairs) and all(
            copy.exists() and copy.read_bytes() == own.read_bytes() for own, copy in pairs
        )


def journal(door: Running) -> Path:
    """Return what a door writes today."""
    return max(door.journals.glob("*.journal"))


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    # Tokens are counted by the day (UTC): none begins in the middle of a test.
    wait_until(lambda: time.time() % DAY < DAY - 3 * MINUTE, 4 * MINUTE)
    with ExitStack() as stack:
        yield Doors(tmp_path, stack)


def worker_of(door: Running) -> int:
    """Return the process that serves."""
    shown = ask(door.admin, "show info")
    return int(next(line.split()[1] for line in shown.splitlines() if line.startswith("Pid:")))


def said(door: Running, *words: str) -> bool:
    """Tell whether a line of a door's log has all these words."""
    lines = door.log.read_text().splitlines()
    return any(all(one in line for one in words) for line in lines)


def kill(door: Running) -> None:
    """End a door as the end of its host does, its worker as well."""
    worker = worker_of(door)
    door.stop(signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not listens(door.port))


def found(doors: Doors, key: str) -> int:
    """Ask as clients do that are given two addresses: the next one, where one refuses."""
    for door in doors.both:
        try:
            return status(door, key)
        except ConnectionRefusedError:
            continue
    return 0


def status(door: Running, key: str, **body: Any) -> int:
    return door.chat(key, **{**BODY, **body})[0]


def limited_by_both(doors: Doors, name: str) -> bool:
    """Hold that a client's requests a minute count in both; tell whether a minute was enough."""
    one, two = doors.both
    began = time.monotonic()
    found = [status(one, name), status(one, name)]
    wait_until(lambda: doors.copied(1))
    found += [status(two, name) for _ in range(3)]
    wait_until(lambda: doors.copied(0))
    refused = [door.code(name, **BODY) for door in (one, two)]
    if time.monotonic() - began >= MINUTE:
        return False
    assert found == [200, 200, 200, 200, 429]
    assert refused == [(429, "rate_limit_exceeded")] * 2
    return True


def test_a_client_has_one_count_over_both_which_opens_to_them_alone(doors: Doors) -> None:
    one, two = doors.both
    assert [status(one, ALICE), status(one, ALICE, stream=True)] == [200, 200]
    # Each by itself, until one has asked all of it within a minute: requests count no longer.
    assert any(limited_by_both(doors, name) for name in BOBS)
    wait_until(lambda: doors.copied(1))
    assert [status(two, ALICE) for _ in range(4)] == [200, 200, 200, 200]
    wait_until(lambda: doors.copied(0))
    assert [door.code(ALICE, **BODY)[0] for door in (one, two)] == [429, 429]
    # Each keeps what went through itself: nothing is paid twice.
    assert [door.used("alice")[0] for door in (one, two)] == [2, 4]

    # What they read of each other opens to them alone.
    own = journal(one)
    path = f"/journal?day={own.name[:10]}&from=0"
    assert [one.ask("GET", path, key=key)[0] for key in ("", ALICE)] == [401, 404]
    assert one.ask("GET", path, key=PEER_KEY)[:2] == (200, own.read_text())
    assert one.ask("GET", "/journal?day=../../x&from=0", key=PEER_KEY)[0] == 400
    assert one.ask("GET", "/v1/models", key=PEER_KEY)[0] == 401


def test_when_one_is_killed_the_other_goes_on_with_what_both_have_counted(doors: Doors) -> None:
    one, two = doors.both
    assert [status(one, ALICE) for _ in range(5)] == [200] * 5
    wait_until(lambda: doors.copied(1))
    texts: list[str] = []
    engine = one.engines[0]
    engine.finish.clear()
    before = len(engine.bodies)
    body = {"model": "m", "stream": True, "waits": True, **BODY}
    asking = threading.Thread(
        target=lambda: texts.append(two.ask("POST", "/v1/completions", body, "carol")[1])
    )
    asking.start()
    try:
        wait_until(lambda: len(engine.bodies) > before)
        assert found(doors, "carol") == 200
        kill(one)
        assert [found(doors, "carol") for _ in range(5)] == [200] * 5
        # Also by a worker that was started after: the copy is on its disk.
        two.write("second")
        haproxy_door.reload(f"{two.run_dir}/master.sock")
        assert haproxy_door.wait(two.admin, "second", 120) == "second"
        assert status(two, ALICE) == 200
        assert status(two, ALICE) == 429
    finally:
        engine.finish.set()
        asking.join(120)
    assert texts[0].endswith("data: [DONE]\n\n")
    # By the worker that serves now: the one before it has said so, too.
    serves = f"({worker_of(two)})"
    wait_until(lambda: said(two, serves, "cannot be asked what its clients used"))

    # Back again, it has what was used meanwhile.
    one.start()
    wait_until(lambda: doors.copied(0))
    assert status(one, ALICE) == 429
    wait_until(lambda: said(two, serves, "is read again"))

    # A door that has no other one any more still counts what was used there today.
    two.settings["door_peers"] = []
    two.write("third")
    haproxy_door.reload(f"{two.run_dir}/master.sock")
    assert haproxy_door.wait(two.admin, "third", 120) == "third"
    assert (two.used("alice")[0], status(two, ALICE)) == (1, 429)


def test_a_journal_that_has_lost_its_end_is_read_anew(doors: Doors) -> None:
    """A host that lost its power may come back with less than the other door has read."""
    one, two = doors.both
    began = time.monotonic()
    assert [status(one, "bob"), status(one, "bob")] == [200, 200]
    wait_until(lambda: one.used("bob") == (2, 14, 6))
    assert [status(one, ALICE) for _ in range(3)] == [200] * 3
    wait_until(lambda: one.used("alice") == (3, 21, 9))
    wait_until(lambda: doors.copied(1))
    own = journal(one)
    lines = own.read_text().splitlines(keepends=True)
    kill(one)
    own.write_text("".join(lines[:-1]))
    one.start()
    wait_until(lambda: doors.copied(1))
    # No request counts twice, and after a minute none counts.
    assert [status(two, "bob"), status(two, "bob")] == [200, 200]
    assert status(two, "bob") == 429 or time.monotonic() - began >= MINUTE
    left = 60 - sum(one.used("alice")[1:])
    assert [status(two, ALICE) for _ in range(left // 10 + 1)] == [200] * (left // 10) + [429]


@pytest.mark.parametrize("tail", ["1795708054.8", "\0" * 40], ids=["part of a line", "NULs"])
def test_a_damaged_end_of_a_journal_costs_no_count(doors: Doors, tail: str) -> None:
    """A full disk leaves part of a line, a loss of power leaves NULs."""
    one, two = doors.both
    assert [status(one, ALICE) for _ in range(3)] == [200] * 3
    wait_until(lambda: one.used("alice") == (3, 21, 9))
    kill(one)
    own = journal(one)
    with own.open("a") as file:
        file.write(tail)
    one.start()
    assert [status(one, ALICE) for _ in range(3)] == [200] * 3
    assert status(one, ALICE) == 429
    wait_until(lambda: len(own.read_bytes().splitlines()) > 4 and doors.copied(1))
    wait_until(lambda: status(two, ALICE) == 429)
    # What both write afterwards is read as before.
    assert status(one, "carol") == 200
    wait_until(lambda: "carol" in own.read_text() and doors.copied(1))
    kill(one)
    one.start()
    assert status(one, ALICE) == 429
    for door in (one, two):
        assert "runtime error" not in door.log.read_text()
        assert "the counting goes on" not in door.log.read_text()


def test_a_file_that_cannot_be_read_does_not_end_the_counting(doors: Doors) -> None:
    one, two = doors.both
    assert status(one, ALICE) == 200
    wait_until(lambda: doors.copied(1))
    (own,) = one.journals.glob("*.journal")
    kill(two)
    copy = two.journals / f"{own.name}.door0"
    copy.unlink()
    copy.mkdir()
    two.start()
    wait_until(lambda: "the counting goes on after an error" in two.log.read_text())
    assert status(two, "carol") == 200
    # What it counts is written.
    wait_until(lambda: two.used("carol") == (1, 7, 3))
