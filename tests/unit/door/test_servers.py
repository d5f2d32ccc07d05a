"""An engine is drained behind a real door, and gets requests again."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from vllm_ansible.node.engine.haproxy_door import all_requests, engine_requests

from .running import Running, wait_until
from .test_applied import InFlight

NAMES = ["chat-serve", "engine0", "engine1"]


def test_an_engine_ends_its_requests_and_gets_no_more_until_it_is_let_in(
    door: Callable[..., Running], run_module: Callable[..., dict[str, Any]]
) -> None:
    running = door(models=("m", "m"))
    first, second = running.engines

    def told(state: str = "look", **how: Any) -> dict[str, Any]:
        given = {"socket": running.admin, "servers": ["engine0"], "state": state}
        return run_module("door_servers", given, [], **how)

    def requests() -> int:
        return int(told()["servers"][0]["requests"])

    wait_until(lambda: told()["servers"][0]["up"])
    with InFlight(running, pieces=60), InFlight(running, pieces=60):
        # Each has one, since the one with the fewest is asked.
        wait_until(lambda: requests() == 1)
        assert told("drain", check=True)["changed"]
        assert told()["servers"][0]["up"]
        assert told("drain")["changed"]
        assert not told("drain")["changed"]
        asked = len(first.bodies)
        assert [running.code()[0] for _ in range(4)] == [200] * 4
        assert len(first.bodies) == asked
        assert requests() == 1
    wait_until(lambda: requests() == 0)
    # Of a model that nobody else has, clients are asked to come again.
    both = {"socket": running.admin, "servers": NAMES, "state": "drain"}
    assert run_module("door_servers", both, [])["changed"]
    status, _, headers = running.ask("POST", "/v1/completions", {"model": "m", "prompt": "a"})
    assert (status, headers.get("Retry-After") or headers.get("retry-after")) == (503, "5")
    assert told("ready")["changed"]
    assert not told("ready")["changed"]
    assert running.code()[0] == 200
    assert len(first.bodies) > asked
    assert [one["name"] for one in run_module("door_servers", both, [])["servers"]] == [
        "engine0",
        "engine1",
    ]
    assert second.bodies


def test_what_an_engine_says_itself_counts_as_well() -> None:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                b'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
                b'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
                b'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0\n'
            )

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{server.server_port}"
        assert engine_requests(address) == 3
        # Behind a router the door does not see them.
        assert all_requests([{"requests": 0}], [address]) == 3
        assert all_requests([{"requests": 4}], [address]) == 4
        assert all_requests([{"requests": 0}], []) == 0
    finally:
        server.shutdown()
        server.server_close()
    assert engine_requests(f"127.0.0.1:{server.server_port}", 1) is None
    assert engine_requests("") is None
