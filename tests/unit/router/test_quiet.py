"""While nobody asks, ranks are left alone but for a question now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from .running import LOOK_SECONDS, Load, Running, wait_until

# A second more than with clients all the while: so often it is looked whether there are any.
EJECTED_SECONDS = 6


def asked(running: Running) -> float:
    """Return how many questions the watch has put to all ranks."""
    found = running.figures()
    return sum(found[f'router_probe_requests_total{{rank="{name}"}}'] for name in running.names)


def pause(running: Running, seconds: float) -> float:
    """Let so many seconds pass in which the watch answers; return how many it were in all."""
    began = last = time.monotonic()
    passed = 0.0
    while passed < seconds:
        running.figures()
        time.sleep(0.02)
        now = time.monotonic()
        passed += min(now - last, LOOK_SECONDS)
        last = now
    return last - began


def test_ranks_are_asked_seldom_until_a_client_asks(started: Callable[..., Running]) -> None:
    running = started(ranks=2, quiet_seconds=2)
    # What asks for these figures is no request to a rank.
    pause(running, 4.5)
    before = asked(running)
    # Two ranks, every second, would be 8.
    assert pause(running, 4) * 0.5 + 1 > asked(running) - before
    running.set("rank-0", hung=True)
    pause(running, 1)
    assert running.up() == {"rank-0", "rank-1"}, "nobody asks, so nobody can know yet"
    with Load(running, clients=4):
        assert wait_until(lambda: running.up() == {"rank-1"}) <= EJECTED_SECONDS
        running.set("rank-0", hung=False)
        wait_until(lambda: running.up() == {"rank-0", "rank-1"})
        before = asked(running)
        pause(running, 4)
        assert asked(running) - before >= 4
