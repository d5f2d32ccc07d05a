"""Answer on the ports that engines will listen on, to those who have the cluster's key."""

from __future__ import annotations

import errno
import os
import resource
import selectors
import socket
import time
from contextlib import suppress
from typing import Any, Callable

from . import reach_wire as wire
from .failure import Failure
from .reach_ports import listen

# A stranger who opens connections and says nothing must not keep others out.
MOST_CONNECTIONS = 2048
RECEIVE_BUFFER = 4 << 20
AT_ONCE = 64


class Responder:
    """Listening sockets of one host, and what those who connected have said so far."""

    def __init__(
        self, key: bytes, address: str, ports: list[int], clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Listen on all ports; datagrams are echoed on the number of the last one."""
        allow_descriptors()
        self.key, self.clock = key, clock
        self.selector = selectors.DefaultSelector()
        self.said: dict[socket.socket, bytes] = {}
        self.sessions: dict[socket.socket, bytes] = {}
        self.arrived: dict[bytes, int] = {}
        self.connections = 0
        self.udp_port = ports[-1]
        for port in ports:
            made = listen(address, port)
            if made is None:
                raise Failure(f"port {port} of {address} was taken a moment ago", taken=port)
            self.selector.register(made, selectors.EVENT_READ, self.accept)
        self.udp = wire.socket_for(address, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        try:
            self.udp.bind((address, self.udp_port))
        except OSError as error:
            raise Failure(
                f"nothing can be received on UDP port {self.udp_port} of {address}: "
                f"{error.strerror}",
                **({"taken": self.udp_port} if error.errno == errno.EADDRINUSE else {}),
            ) from error
        self.selector.register(self.udp, selectors.EVENT_READ, self.echo)

    def serve(self, seconds: float) -> None:
        """Answer for this long, no longer."""
        end = time.monotonic() + seconds
        with self.selector:
            while (left := end - time.monotonic()) > 0:
                for key, _ in self.selector.select(left):
                    # One answer may have closed what the next event is about.
                    if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # sockets alone are registered
                        key.data(key.fileobj)
            for key in list(self.selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]  # sockets alone are registered

    def accept(self, listener: socket.socket) -> None:
        """Take those who knock."""
        for _ in range(AT_ONCE):
            if len(self.said) >= MOST_CONNECTIONS:
                self.close(next(iter(self.said)))
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connections += 1
            self.said[connection] = b""
            self.selector.register(connection, selectors.EVENT_READ, self.hear)

    def hear(self, connection: socket.socket) -> None:
        """Answer what one of them says; who says nothing right is let go without a word."""
        try:
            data = connection.recv(256)
            came = self.clock()
            if not data:
                self.close(connection)
            elif connection in self.sessions:
                self.answer(connection, data, came)
            else:
                self.greet(connection, self.said[connection] + data)
        except OSError:
            self.close(connection)

    def greet(self, connection: socket.socket, said: bytes) -> None:
        """Open a session for a holder of the key."""
        self.said[connection] = said
        if len(said) < wire.HELLO_BYTES:
            return
        if len(said) > wire.HELLO_BYTES or not wire.is_hello(self.key, said):
            self.close(connection)
            return
        session = os.urandom(16)
        self.sessions[connection] = session
        self.arrived[session] = 0
        nonce = said[: wire.NONCE_BYTES]
        connection.send(wire.welcome(self.key, nonce, session, self.udp_port))

    def answer(self, connection: socket.socket, data: bytes, came: int) -> None:
        """Tell the time, or how many datagrams have come."""
        if data == wire.PING:
            connection.send(wire.CLOCKS.pack(came, self.clock()))
        elif data == wire.COUNT:
            count = self.arrived[self.sessions[connection]]
            connection.send(wire.COUNTS.pack(count, wire.dropped(self.udp)))
        else:
            self.close(connection)

    def echo(self, udp: socket.socket) -> None:
        """Send datagrams of known sessions back."""
        for _ in range(AT_ONCE):
            try:
                data, sender = udp.recvfrom(2048)
            except OSError:
                return
            session = data[:16]
            if len(data) == wire.DATAGRAM.size and session in self.arrived:
                self.arrived[session] += 1
                with suppress(OSError):
                    udp.sendto(data, sender)

    def close(self, connection: socket.socket) -> None:
        """Let one of them go."""
        self.selector.unregister(connection)
        self.said.pop(connection, None)
        self.arrived.pop(self.sessions.pop(connection, b""), None)
        connection.close()


def allow_descriptors() -> int:
    """Let this process open as many files as it may, and return how many that are."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft > 0 else 1 << 20


def work(
    key: bytes, address: str, ports: list[int], seconds: float
) -> Callable[[Callable[..., None]], Any]:
    """Return the background task that answers on these ports."""

    def answer(report: Callable[..., None]) -> dict[str, Any]:
        responder = Responder(key, address, ports)
        report(len(ports), len(ports), "ports", f"listening on {len(ports)} ports of {address}")
        responder.serve(seconds)
        return {"connections": responder.connections}

    return answer
