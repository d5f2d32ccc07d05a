"""Ranks that die, hang, crawl and come back under load, behind the role's own HAProxy and watch."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import yaml

from .running import ROOT, Load, Running, wait_until

EJECTED_SECONDS, RETURNED_SECONDS = 5, 10


def gone(running: Running, name: str) -> bool:
    """Tell whether a rank is out, once the watch answers: what delays it, delays this look."""
    running.figures()
    return name not in running.up()


def test_a_killed_rank_costs_no_more_than_what_it_had_in_flight(
    started: Callable[..., Running],
) -> None:
    running = started()
    with Load(running) as load:
        load.go_on()
        killed_at = time.monotonic()
        running.signal("rank-1", signal.SIGKILL)
        running.processes["rank-1"].wait()
        # Until then the kernel takes connections for it, and what was sent is not sent again.
        gone_at = time.monotonic()
        assert wait_until(lambda: gone(running, "rank-1")) <= EJECTED_SECONDS
        load.go_on()
        running.start_rank("rank-1")
        wait_until(lambda: running.told_or_none("rank-1"))
        assert wait_until(lambda: not gone(running, "rank-1")) <= RETURNED_SECONDS
        wait_until(lambda: running.seen("rank-1"))
    for name, status, began, ended in load.failed():
        in_flight = began <= gone_at and killed_at <= ended
        assert in_flight, f"{name} failed with {status} and was not in flight"
    assert len(load.failed()) <= 6


def test_a_stopped_rank_is_ejected_and_returns_when_it_goes_on(
    started: Callable[..., Running],
) -> None:
    running = started()
    with Load(running, clients=12) as load:
        load.go_on()
        running.signal("rank-0", signal.SIGSTOP)
        assert wait_until(lambda: gone(running, "rank-0")) <= EJECTED_SECONDS
        # What it has taken waits for it; the others go on.
        load.go_on()
        running.signal("rank-0", signal.SIGCONT)
        assert wait_until(lambda: not gone(running, "rank-0")) <= RETURNED_SECONDS
        load.go_on()
    assert load.failed() == []
    assert max(running.seen().values()) == 1, "a request was sent twice"


def test_a_rank_that_listens_and_computes_nothing_is_ejected(
    started: Callable[..., Running],
) -> None:
    """Its health page answers all the while: completions alone tell."""
    running = started()
    running.set("rank-2", hung=True)
    assert wait_until(lambda: gone(running, "rank-2")) <= EJECTED_SECONDS
    row = running.rows()["rank-2"]
    # A star while the next check runs.
    assert row["check_status"].removeprefix("* ") == "L7OK"
    assert "no token for" in row["last_agt"]
    assert called(running) == {"rank-2"}
    running.set("rank-2", hung=False)
    assert wait_until(lambda: not gone(running, "rank-2")) <= RETURNED_SECONDS
    assert called(running) == set()


def called(running: Running) -> set[str]:
    """Return the ranks of which the alert RankEjected would be, by the router's own figures."""
    groups = yaml.safe_load((ROOT / "roles/observe/files/rules.yml").read_text())["groups"]
    (asked,) = [
        rule["expr"]
        for group in groups
        for rule in group["rules"]
        if rule.get("alert") == "RankEjected"
    ]
    selected = 'haproxy_server_status{job="router", proxy="ranks", state="UP"} == 0'
    assert asked == selected, "this test reads the figures as that rule does"
    figures = running.ask("GET", "/metrics")[1]
    shown = r'^haproxy_server_status\{proxy="ranks",server="([^"]+)",state="UP"\} 0$'
    return set(re.findall(shown, figures, re.MULTILINE))


def test_a_busy_rank_whose_queue_is_long_is_not_ejected(started: Callable[..., Running]) -> None:
    """Our own question waits far longer than a hung rank is given, and the rank stays in."""
    running = started(ranks=2, step=0.05, slots=1)
    with Load(running, clients=8, tokens=60) as load:
        wait_until(lambda: all(int(row["scur"]) >= 4 for row in running.rows().values()))
        waited = time.monotonic()
        while time.monotonic() - waited < 3 * 2.0:
            assert running.up() == {"rank-0", "rank-1"}
            time.sleep(0.1)
        # The watch has not been answered for as long: it is the count that speaks for the ranks.
        assert running.figures()['router_rank_computes{rank="rank-0"}'] == 1
        for name in running.names:
            running.set(name, step=0.0)
    assert load.failed() == []


def test_a_slow_rank_gets_less_and_loses_nothing(started: Callable[..., Running]) -> None:
    running = started(ranks=2)
    running.set("rank-0", step=0.5)
    with Load(running, clients=8) as load:
        load.go_on(80)
    assert load.failed() == []
    slow, quick = (sum(running.seen(name).values()) for name in running.names)
    assert slow * 2 < quick
    assert running.up() == {"rank-0", "rank-1"}


def test_without_the_watch_haproxy_goes_on_alone(started: Callable[..., Running]) -> None:
    running = started()
    running.signal("watch", signal.SIGKILL)
    running.processes["watch"].wait()
    running.signal("rank-1", signal.SIGSTOP)
    assert wait_until(lambda: "rank-1" not in running.up()) <= EJECTED_SECONDS
    assert running.up() == {"rank-0", "rank-2"}
    assert running.complete("alone") == 200


def test_with_no_rank_left_clients_are_told(started: Callable[..., Running]) -> None:
    running = started(ranks=1)
    running.signal("rank-0", signal.SIGKILL)
    wait_until(lambda: not running.up())
    status, text, headers = running.ask("POST", "/v1/completions", {"prompt": "p"})
    assert status == 503
    assert "no rank of chat answers" in text
    assert headers["retry-after"] == "5"
    status, _, headers = running.ask("GET", "/health")
    assert (status, headers["retry-after"]) == (503, "5")
