"""While nobody asks, ranks are left alone but for a question now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from .running import Load, Running, wait_until

# A second more than with clients all the while: so often it is looked whether there are any.
EJECTED_SECONDS = 6


def asked(running: Running) -> float:
    """Return how many questions the watch has put to all ranks."""
    found = running.figures()
    return sum(found[f'router_probe_requests_total{{rank="{name}"}}'] for name in running.names)


def pause(seconds: float) -> None:
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds)


def test_ranks_are_asked_seldom_until_a_client_asks(started: Callable[..., Running]) -> None:
    running = started(ranks=2, quiet_seconds=2)
    # What asks for these figures is no request to a rank.
    pause(4.5)
    before = asked(running)
    pause(4)
    # Two ranks, every second: 8.
    assert asked(running) - before <= 2
    running.set("rank-0", hung=True)
    pause(1)
    assert running.up() == {"rank-0", "rank-1"}, "nobody asks, so nobody can know yet"
    with Load(running, clients=4):
        assert wait_until(lambda: running.up() == {"rank-1"}) <= EJECTED_SECONDS
        running.set("rank-0", hung=False)
        wait_until(lambda: running.up() == {"rank-0", "rank-1"})
        before = asked(running)
        pause(4)
        assert asked(running) - before >= 4
