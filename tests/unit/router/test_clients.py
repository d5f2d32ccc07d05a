"""What clients meet at a router: the key, streams as they are made, one rank for each request."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulators.data_rank import KEY as RANK_KEY

from .client import ask
from .running import CLIENT_KEY, HAPROXY, Load, Running, wait_until

STEP = 0.1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return one router for the tests that leave its ranks alone."""
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with Running(tmp_path_factory.mktemp("router"), ranks=2) as made:
        yield made


# Names without the keys: pytest puts that of a test into the environment of what it starts.
@pytest.mark.parametrize(
    "key",
    ["", "wrong", RANK_KEY, CLIENT_KEY[:-1], CLIENT_KEY + "x"],
    ids=["none", "wrong", "a-rank's", "short", "long"],
)
def test_without_the_clients_key_no_rank_is_asked(running: Running, key: str) -> None:
    for path in ("/v1/completions", "/v1/models", "/metrics", "/metrics/watch", "/x"):
        assert ask(running.port, "POST", path, {"prompt": "p"}, key, "stranger")[0] == 401
    assert running.seen()["stranger"] == 0


@pytest.mark.parametrize("scheme", ["", "Basic ", "bearer", "Token "])
def test_the_key_alone_under_another_scheme_is_none(running: Running, scheme: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
    connection.request("GET", "/v1/models", headers={"Authorization": f"{scheme}{CLIENT_KEY}"})
    assert connection.getresponse().status == 401
    connection.close()


def test_with_it_the_rank_sees_its_own_key_and_says_who_it_is(running: Running) -> None:
    status, text, headers = running.ask("GET", "/v1/models")
    # A rank lets nobody in without its own key, which no client has.
    assert (status, json.loads(text)) == (200, {"data": [{"id": "m"}]})
    assert headers["x-rank"] in running.names


def test_a_rank_is_given_its_key_as_it_is_written(started: Callable[..., Running]) -> None:
    """Whatever HAProxy's configuration would take it for elsewhere."""
    running = started(ranks=1, key='sk-%[src]%%{+Q}$HOME\\x"#"')
    assert running.complete("one") == 200


def test_health_needs_no_key_and_metrics_are_the_routers(running: Running) -> None:
    assert ask(running.port, "GET", "/health")[0] == 200
    status, text, _ = running.ask("GET", "/metrics")
    assert status == 200
    assert 'haproxy_server_status{proxy="ranks",server="rank-1",state="UP"} 1' in text
    assert "vllm:" not in text


def test_no_key_is_in_arguments_environment_or_log(running: Running) -> None:
    for name in ("haproxy", "watch"):
        place = Path("/proc", str(running.processes[name].pid))
        told = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        told += (running.directory / f"{name}.log").read_bytes()
        assert CLIENT_KEY.encode() not in told
        assert RANK_KEY.encode() not in told


def test_its_sockets_are_the_services_alone(running: Running) -> None:
    for name in ("admin.sock", "stats.sock", "watch.sock"):
        assert (running.run_dir / name).stat().st_mode & 0o077 == 0, name


def test_chunks_of_a_stream_arrive_as_they_are_made(started: Callable[..., Running]) -> None:
    running = started(ranks=1, step=STEP)

    def gaps(port: int, key: str) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        body = json.dumps({"prompt": "p", "max_tokens": 10, "stream": True})
        connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        times = []
        while line := answer.readline():
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
        connection.close()
        return [after - before for before, after in itertools.pairwise(times)]

    def apart(step: float) -> bool:
        running.set("rank-0", step=step)
        found = gaps(running.port, CLIENT_KEY)
        assert len(found) == 9
        return min(found) > step / 2

    # A buffer would join chunks of every stream; a busy machine joins those of some, and fewer the
    # slower they are made.
    assert any(apart(step) for step in (STEP, STEP, 3 * STEP, 10 * STEP, 15 * STEP))


def test_who_goes_away_ends_his_request_at_the_rank(started: Callable[..., Running]) -> None:
    running = started(ranks=1, step=0.05)
    for stream in (False, True):
        before = running.told("rank-0")["given_up"]
        body = json.dumps({"prompt": "p", "max_tokens": 2000, "stream": stream})
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=120)
        headers = {"Authorization": f"Bearer {CLIENT_KEY}", "X-Request-Id": f"gone-{stream}"}
        connection.request("POST", "/v1/completions", body, headers)
        wait_until(lambda stream=stream: running.seen()[f"gone-{stream}"])
        connection.close()
        wait_until(lambda before=before: running.told("rank-0")["given_up"] > before)


def test_a_request_that_was_sent_is_never_sent_again(started: Callable[..., Running]) -> None:
    """The rank ends with it in its hands: the client is told, and no other rank sees it."""
    running = started(step=0.2)
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(running.complete("once", 500)))
    asking.start()
    wait_until(lambda: running.seen()["once"])
    (holder,) = [name for name in running.names if running.seen(name)["once"]]
    running.signal(holder, signal.SIGKILL)
    asking.join()
    assert statuses == [502]
    others = [name for name in running.names if name != holder]
    assert running.seen(*others)["once"] == 0


def test_a_request_that_no_rank_saw_goes_to_another_one(started: Callable[..., Running]) -> None:
    """Checks have not noticed yet that this one is gone."""
    running = started(ranks=2)
    running.signal("rank-0", signal.SIGKILL)
    running.processes["rank-0"].wait()
    assert [running.complete(f"early-{number}") for number in range(6)] == [200] * 6
    assert set(running.seen("rank-1").values()) == {1}


def test_a_drained_rank_ends_what_it_has_and_gets_no_more(running: Running) -> None:
    with Load(running) as load:
        load.go_on()
        running.admin("set server ranks/rank-0 state drain")
        wait_until(lambda: running.rows()["rank-0"]["scur"] == "0")
        before = sum(running.seen("rank-0").values())
        load.go_on(40)
        assert sum(running.seen("rank-0").values()) == before
        running.admin("set server ranks/rank-0 state ready")
        wait_until(lambda: sum(running.seen("rank-0").values()) > before)
    assert load.failed() == []


def test_half_a_request_does_not_hold_a_rank(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
        assert running.complete("meanwhile") == 200
        wait_until(lambda: all(row["scur"] == "0" for row in running.rows().values()))
