"""One authenticated session with a peer: round trips, its clock, and what it received."""

from __future__ import annotations

import os
import socket
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable

from . import wire

PINGS = 20
# A far peer gets fewer, so that the whole takes seconds wherever the hosts are.
LEAST_PINGS = 5
PING_SECONDS = 0.5
# A peer that was given no time reads all that has come before it counts.
COUNT_SECONDS = 15.0


class NoAnswer(Exception):
    """The peer does not answer as one of this cluster does."""


@dataclass
class Session:
    """An open session, its name for datagrams, and where they go."""

    connection: socket.socket
    address: str
    name: bytes
    udp_port: int

    @property
    def source(self) -> str:
        """Return the address of this host that the kernel chose for this peer."""
        return str(self.connection.getsockname()[0])

    def ask(self, question: bytes, size: int) -> bytes:
        """Return the answer of this many bytes."""
        self.connection.sendall(question)
        return receive(self.connection, size)

    def counts(self) -> tuple[int, int]:
        """Return how many datagrams reached the peer, and how many its own kernel dropped."""
        self.connection.settimeout(max(COUNT_SECONDS, self.connection.gettimeout() or 0.0))
        arrived, dropped = wire.COUNTS.unpack(self.ask(wire.COUNT, wire.COUNTS.size))
        return arrived, dropped


def receive(connection: socket.socket, size: int) -> bytes:
    """Return exactly this many bytes."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise NoAnswer("the peer closed the connection")
        data += more
    return data


def meet(key: bytes, address: str, port: int, seconds: float) -> Session:
    """Open a session with the responder at a port, or raise NoAnswer."""
    connection = wire.socket_for(address, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address, port))
        nonce = os.urandom(wire.NONCE_BYTES)
        connection.sendall(wire.hello(key, nonce))
        name, udp_port = wire.read_welcome(key, nonce, receive(connection, wire.WELCOME_BYTES))
    except (OSError, ValueError, NoAnswer) as error:
        connection.close()
        raise NoAnswer(f"{address}:{port}: {error}") from error
    return Session(connection, address, name, udp_port)


def measure(session: Session, clock: Callable[[], int] = time.time_ns) -> dict[str, Any]:
    """Return round trip and clock of a peer.

    `round_trip_us` is the median of up to 20, `round_trip_best_us` the fastest, which a busy
    processor spoils least. `clock_offset_seconds` is the peer's clock less this
    one's, as NTP computes it from the fastest round trip; it is right to within half of that,
    `clock_uncertainty_seconds`.
    """
    trips: list[float] = []
    best = (float("inf"), 0.0)
    end = time.monotonic() + PING_SECONDS
    while len(trips) < PINGS and (len(trips) < LEAST_PINGS or time.monotonic() < end):
        sent = clock()
        started = time.perf_counter()
        answer = session.ask(wire.PING, wire.CLOCKS.size)
        trips.append(time.perf_counter() - started)
        returned = clock()
        there, back = wire.CLOCKS.unpack(answer)
        width = (returned - sent) - (back - there)
        best = min(best, (width, ((there - sent) + (back - returned)) / 2))
    return {
        "round_trip_us": round(statistics.median(trips) * 1e6, 1),
        "round_trip_best_us": round(min(trips) * 1e6, 1),
        "clock_offset_seconds": round(best[1] / 1e9, 6),
        "clock_uncertainty_seconds": round(max(0.0, best[0]) / 2e9, 6),
    }
