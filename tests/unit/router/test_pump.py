"""The idle pump, before ranks that step together or not at all."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

from .client import ask
from .running import Running, wait_until


def pumped(running: Running) -> dict[str, float]:
    """Return the requests that the pump has given to each rank."""
    shape = re.compile(r'router_pump_requests_total\{rank="(.*)"\}')
    found = {shape.fullmatch(name): value for name, value in running.figures().items()}
    return {match[1]: value for match, value in found.items() if match}


def test_without_the_pump_one_request_alone_is_never_answered(
    started: Callable[..., Running],
) -> None:
    """So the emulated ranks do need it, and the next test can fail."""
    running = started(lockstep=True)
    # The watch's own questions, which come at once for all ranks, would carry it along.
    running.signal("watch", signal.SIGKILL)
    running.processes["watch"].wait()
    direct = running.rank_ports[0]
    body = {"model": "m", "prompt": "p", "max_tokens": 3}
    try:
        ask(direct, "POST", "/v1/completions", body, "rank-key", "alone", timeout=3)
    except TimeoutError:
        return
    raise AssertionError("it was answered")


def test_the_pump_carries_one_request_through_all_ranks(started: Callable[..., Running]) -> None:
    running = started(ranks=4, lockstep=True, pump=True)
    before = pumped(running)
    assert running.complete("carried", tokens=100) == 200
    after = pumped(running)
    holder = next(name for name in running.names if running.seen(name)["carried"])
    added = {name: after[name] - before[name] for name in running.names}
    idle = [name for name in running.names if name != holder]
    # 100 tokens in requests of 8, but for those steps that the watch's own questions took.
    assert all(5 <= added[name] <= 20 for name in idle), added
    assert added[holder] <= 4
    told = [one for one in running.told(idle[0])["requests"] if one["user"] == "idle-pump"]
    assert re.fullmatch(r"idle-pump-\d+", told[0]["id"])
    # Of the router's own figures they are no part.
    assert sum(int(row["stot"]) for row in running.rows().values()) == 1


def test_with_nothing_to_do_the_pump_rests(started: Callable[..., Running]) -> None:
    """Only the watch's own questions, one a second, may let it begin."""
    running = started(lockstep=True, pump=True)
    before, began = sum(pumped(running).values()), time.monotonic()
    wait_until(lambda: time.monotonic() - began > 4)
    seconds = time.monotonic() - began
    assert sum(pumped(running).values()) - before <= 4 * len(running.names) * seconds


def test_a_dead_rank_is_tried_ever_less_often(started: Callable[..., Running]) -> None:
    running = started(ranks=2, step=0.05, pump=True)
    running.signal("rank-1", signal.SIGKILL)
    running.processes["rank-1"].wait()
    wait_until(lambda: running.up() == {"rank-0"})
    before, began = pumped(running)["rank-1"], time.monotonic()
    assert running.complete("long", tokens=120) == 200
    seconds = time.monotonic() - began
    # Pauses of 0.25, 0.5, 1, 2, 4 s and so on: without them thousands.
    assert seconds > 5
    assert 1 <= pumped(running)["rank-1"] - before <= 6 + seconds / 4
    running.start_rank("rank-1")
    wait_until(lambda: running.up() == set(running.names))
    assert running.complete("after") == 200
