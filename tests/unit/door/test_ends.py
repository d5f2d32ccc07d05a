"""A stream whose last piece is no whole event ends when its engine ends it, however it does."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator

import pytest

from .running import HAPROXY, Running

SENT = b'data: {"a":1}\n\ndata: {"b":2}'
# The head, what comes with the piece, and what comes after it.
ENDS = {
    "by chunks": (b"Transfer-Encoding: chunked", b"%x\r\n" % len(SENT), b"\r\n0\r\n\r\n"),
    "by its length": (b"Content-Length: %d" % (len(SENT) + 1), b"", b"\n"),
    "by the connection": (b"Connection: close", b"", b""),
}


class Ending(socketserver.BaseRequestHandler):
    """Sends a stream without the end of its last event, and ends it once the door may have it."""

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.request.recv(1 << 16)
            if not piece:
                return
            head += piece
        if head.startswith(b"GET"):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return
        header, before, after = ENDS[Engine.end]
        start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%s\r\n\r\n%s%s"
        self.request.sendall(start % (header, before, SENT))
        Engine.seen.wait(120)
        self.request.sendall(after)


class Engine(socketserver.ThreadingTCPServer):
    """Answers as its class says."""

    daemon_threads = True
    model = "m"
    end = ""
    seen = threading.Event()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Ending)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    one = Running(tmp_path_factory.mktemp("door"))
    one.engines = [Engine()]  # type: ignore[list-item]
    with one:
        yield one


@pytest.mark.parametrize("end", ENDS)
def test_the_last_piece_of_a_stream_is_not_kept(running: Running, end: str) -> None:
    Engine.end = end
    Engine.seen.clear()
    connection, answer = running.send("POST", "/v1/completions", {"model": "m", "stream": True})
    first = answer.read(len(b'data: {"a":1}\n\n'))
    Engine.seen.set()
    rest = answer.read()
    connection.close()
    assert first + rest == SENT + (b"\n" if end == "by its length" else b"")
