"""The whole machine stands still, as while it is moved to another host: no rank was silent then."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from .running import Load, Running, wait_until

# Its own steps take less than the first, on a slow machine, too.
ANSWER_SECONDS, PAUSE_SECONDS, LATER_SECONDS = 12.0, 14.0, 1.0


def figures(running: Running, figure: str) -> dict[str, float]:
    found = running.figures()
    return {name: found[f'{figure}{{rank="{name}"}}'] for name in running.names}


def test_a_pause_of_all_ejects_no_rank(started: Callable[..., Running]) -> None:
    running = started(answer_seconds=ANSWER_SECONDS)
    asked = figures(running, "router_probe_requests_total")
    # The worst moment: each has been asked, and none has answered.
    for name in running.names:
        running.signal(name, signal.SIGSTOP)
    wait_until(
        lambda: all(
            now > asked[name]
            for name, now in figures(running, "router_probe_requests_total").items()
        )
    )
    judges = ["watch", "haproxy"]
    for name in judges:
        running.signal(name, signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    for name in judges:
        running.signal(name, signal.SIGCONT)
    time.sleep(LATER_SECONDS)
    assert set(figures(running, "router_rank_computes").values()) == {1}
    for name in running.names:
        running.signal(name, signal.SIGCONT)
    with Load(running) as load:
        load.go_on()
    assert load.failed() == []
    log = (running.directory / "haproxy.log").read_text()
    assert "is DOWN" not in log, log
