"""An engine that answers without end, or a byte now and then, holds nobody who asks it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vllm_ansible.node.engine import router
from vllm_ansible.node.engine.completion import Unanswered, ask, status_of
from vllm_ansible.node.engine.ray import ask_nodes
from vllm_ansible.node.failure import Failure

# A test ends with a failure, not with the suite, where nothing else ends it.
SECONDS = 240.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def drips(begin: bytes) -> Callable[[socket.socket], None]:
    """Say something, and then a byte now and then."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(begin)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            connection.sendall(b" ")
            time.sleep(0.1)

    return speak


def floods(connection: socket.socket) -> None:
    """Say more than anybody has to read."""
    connection.sendall(HEAD + b"[")
    for _ in range(300):
        connection.sendall(b" " * (1 << 20))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return what listens and speaks so, at a path or at a port; it gives the address."""
    listening = []

    def start(speak: Callable[[socket.socket], None], path: str = "") -> str:
        if path:
            server = socket.socket(socket.AF_UNIX)
            server.bind(path)
            server.listen()
        else:
            server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(4096)
                        speak(connection)

        threading.Thread(target=serve, daemon=True).start()
        return path or f"http://127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in listening:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()


def took(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK", HEAD + b"{"])
def test_a_byte_now_and_then_does_not_hold_who_asks(
    engine: Callable[..., str], begin: bytes
) -> None:
    url = engine(drips(begin))

    def asked() -> None:
        with pytest.raises(Unanswered, match=r"timed out|within 1 seconds"):
            ask(url, "k", "m", "?", 1, 1)

    assert took(asked) < SECONDS / 2
    port = int(url.rpartition(":")[2])
    answers = []
    assert took(lambda: answers.append(ask_nodes(port, "t", 1))) < SECONDS / 2
    assert answers[0]["error"]
    assert took(lambda: status_of(url, 1)) < SECONDS / 2


def test_an_answer_without_end_is_refused(engine: Callable[..., str]) -> None:
    url = engine(floods)
    with pytest.raises(Unanswered, match="more than 16777216 bytes"):
        ask(url, "k", "m", "?", 1, SECONDS)


@pytest.mark.parametrize("speak", [drips(b"# "), floods])
def test_a_socket_in_the_place_of_the_routers_holds_nobody(
    engine: Callable[..., str], tmp_path: Path, speak: Callable[[socket.socket], None]
) -> None:
    path = engine(speak, str(tmp_path / "s"))

    def asked() -> None:
        with pytest.raises(Failure, match=r"no end of its answer|timed out"):
            router.ask(path, "show stat", 2)

    assert took(asked) < SECONDS / 2


def test_a_redirect_does_not_carry_the_key_away(engine: Callable[..., str]) -> None:
    heard = []

    def listens(connection: socket.socket) -> None:
        heard.append(connection)

    elsewhere = engine(listens)
    head = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
    url = engine(lambda connection: connection.sendall(head.encode()))
    assert status_of(url, SECONDS) == 302
    with pytest.raises(Unanswered, match="302"):
        ask(url, "the-key", "m", "?", 1, SECONDS)
    assert ask_nodes(int(url.rpartition(":")[2]), "the-token", SECONDS)["error"]
    assert not heard
