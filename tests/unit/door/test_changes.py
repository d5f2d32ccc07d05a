"""Engines of one model restarted in turn behind the door, many times over: no request fails.

Fewer turns: DOOR_CHANGES=20 pytest -s -m soak tests/unit/door/test_changes.py
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable

import pytest

from tests.emulators.metered_engine import MeteredEngine
from vllm_ansible.node.engine import haproxy_door

from .running import Running, client, wait_until

CHANGES = int(os.environ.get("DOOR_CHANGES", "200"))
KEYS = [f"key-of-client-{number}" for number in range(5)]
# Of an answer: requests are under way at every moment.
HOLD = 0.1


def ask(door: Running, key: str, over: threading.Event, asked: list[str]) -> None:
    """Ask for whole answers and streams by turns, and keep what was wrong with each."""
    for stream in itertools.cycle((False, True)):
        if over.is_set():
            return
        try:
            status, text, _ = door.chat(key, stream=stream, max_tokens=3, hold=HOLD, pause=0.03)
            whole = text.endswith("[DONE]\n\n") if stream else "choices" in text
            asked.append("" if status == 200 and whole else f"{status}: {text[-200:]}")
        except OSError as error:
            asked.append(str(error))


def server(door: Running, number: int) -> dict[str, object]:
    (found,) = haproxy_door.servers(door.admin, [f"engine{number}"])
    return found


def turn(door: Running, number: int) -> None:
    """Drain an engine, put another one in its place, and let it serve, as an upgrade does."""
    haproxy_door.set_state(door.admin, server(door, number), haproxy_door.DRAIN)
    wait_until(lambda: server(door, number)["requests"] == 0, 60)
    port = door.engines[number].port
    door.engines[number].end()
    new = MeteredEngine("m", port)
    new.__enter__()
    door.engines[number] = new
    haproxy_door.set_state(door.admin, server(door, number), "ready")
    wait_until(lambda: server(door, number)["up"], 60)
    wait_until(lambda: new.bodies, 60)


@pytest.mark.soak
def test_two_hundred_changes_fail_no_request(door: Callable[..., Running]) -> None:
    clients = {f"client{number}": client(key) for number, key in enumerate(KEYS)}
    running = door(models=("m", "m"), clients=clients)
    over, asked = threading.Event(), list[str]()
    users = [threading.Thread(target=ask, args=(running, key, over, asked)) for key in KEYS]
    for user in users:
        user.start()
    try:
        for number in range(CHANGES):
            turn(running, number % 2)
            # Other settings now and then: the worker changes, too.
            if number % 20 == 19:
                running.write(f"settings{number}")
                haproxy_door.reload(f"{running.run_dir}/master.sock")
                wanted = f"settings{number}"
                assert haproxy_door.wait(running.admin, wanted, 60) == wanted
                wait_until(lambda: all(server(running, one)["up"] for one in (0, 1)), 60)
    finally:
        over.set()
        for user in users:
            user.join()
        for engine in running.engines:
            engine.end()
    wrong = [one for one in asked if one]
    print(f"{CHANGES} changes, {len(asked)} requests, {len(wrong)} failed")
    assert not wrong, wrong[:5]
    assert len(asked) > CHANGES
