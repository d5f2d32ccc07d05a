"""A server that finishes what it was asked: the middleware under the engine's own web server."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.flows.clone import wait_until

pytestmark = pytest.mark.engine
GUARD = Path(__file__).parents[2] / "packages/vllm_guard/src"
# What vLLM does with --middleware and its own loop; SIGTERM ends at once, as over Ray.
SERVER = """
import asyncio, contextlib, os, signal, sys
import uvicorn, uvloop
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from vllm_guard.draining import Draining

async def pieces(request):
    async def body():
        yield b"first "
        await go.wait()
        yield b"last"
    return StreamingResponse(body())

async def metrics(request):
    return PlainTextResponse("metrics")

class Server(uvicorn.Server):
    def capture_signals(self):
        return contextlib.nullcontext()

async def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, go.set)
    await Server(uvicorn.Config(app, fd=int(sys.argv[1]))).serve()

go = asyncio.Event()
app = Starlette(routes=[Route("/pieces", pieces), Route("/metrics", metrics)])
app.add_middleware(Draining)
uvloop.run(main())
"""


@pytest.fixture
def port() -> Iterator[tuple[int, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one.getsockname()[1], one


@pytest.fixture
def server(engine: Path, port: tuple[int, socket.socket]) -> Iterator[subprocess.Popen[bytes]]:
    number, listener = port
    started = subprocess.Popen(
        [engine / "bin/python", "-c", SERVER, str(listener.fileno())],
        env={**os.environ, "PYTHONPATH": str(GUARD)},
        pass_fds=[listener.fileno()],
    )
    try:
        wait_until(lambda: ask(number, "/metrics")[0] == 200, 300, "the server")
        yield started
    finally:
        started.kill()
        started.wait()


def ask(port: int, path: str) -> tuple[int, str, str]:
    """Return status, text and what is said of the connection; 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("connection", "")
    except (OSError, http.client.HTTPException):
        return 0, "", ""
    finally:
        connection.close()


def test_what_is_in_flight_is_finished_and_nothing_more_is_taken(
    server: subprocess.Popen[bytes], port: tuple[int, socket.socket]
) -> None:
    number = port[0]
    with ThreadPoolExecutor() as pool:
        connection = http.client.HTTPConnection("127.0.0.1", number, timeout=60)
        connection.request("GET", "/pieces")
        stream = connection.getresponse()
        assert stream.read(6) == b"first "
        server.send_signal(signal.SIGUSR1)
        refused = wait_until(lambda: told(number, 503), 60, "a refusal")
        assert "takes no more requests" in refused[1]
        assert refused[2] == "close"
        # Asked twice, it waits all the same; who watches it may go on.
        server.send_signal(signal.SIGUSR1)
        assert ask(number, "/metrics")[:2] == (200, "metrics")
        assert server.poll() is None
        rest = pool.submit(stream.read)
        server.send_signal(signal.SIGUSR2)
        assert rest.result(60) == b"last"
    assert server.wait(60) == 7


def told(port: int, status: int) -> tuple[int, str, str] | None:
    answer = ask(port, "/refused")
    return answer if answer[0] == status else None


def test_a_server_without_requests_ends_at_once(
    server: subprocess.Popen[bytes], port: tuple[int, socket.socket]
) -> None:
    server.send_signal(signal.SIGUSR1)
    assert server.wait(60) == 7
