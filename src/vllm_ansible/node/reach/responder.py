"""Answer on the ports that engines will listen on, to those who have the cluster's key."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from contextlib import closing
from typing import Any, Callable, Optional

from ..cluster.door import Door, Guest, NotAdmitted
from ..failure import Failure
from . import wire
from .ports import listen

RECEIVE_BUFFER = 4 << 20
AT_ONCE = 64


class Responder:
    """Listening sockets of one host, and what those who connected have said so far."""

    def __init__(
        self, key: bytes, address: str, ports: list[int], clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Listen on all ports; datagrams are echoed on the number of the last one."""
        self.key, self.clock = key, clock
        self.selector = selectors.DefaultSelector()
        self.door = Door(self.selector, self.judge, self.welcome, self.prepare)
        self.sessions: dict[socket.socket, bytes] = {}
        self.arrived: dict[bytes, int] = {}
        self.unsent = 0
        self.udp_port = ports[-1]
        for port in ports:
            made = listen(address, port)
            if made is None:
                raise Failure(f"port {port} of {address} was taken a moment ago", taken=port)
            self.door.watch(made)
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
        with self.selector, closing(self.door):
            while (left := end - time.monotonic()) > 0:
                self.door.turn(left)
            for key in list(self.selector.get_map().values()):
                if key.fileobj not in self.door.guests:
                    key.fileobj.close()  # type: ignore[union-attr]  # sockets alone are registered

    @property
    def connections(self) -> int:
        """How many have connected."""
        return self.door.accepted

    def prepare(self, guest: Guest) -> bytes:
        """Let a connection end at once, so that no port of an engine is left waiting for it."""
        guest.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        guest.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return b""

    def judge(self, guest: Guest) -> Optional[bytes]:
        """Return the nonce of a holder of the key; who says nothing right is let go in silence."""
        if len(guest.said) < wire.HELLO_BYTES:
            return None
        if len(guest.said) > wire.HELLO_BYTES or not wire.is_hello(self.key, guest.said):
            raise NotAdmitted("it does not have this cluster's key")
        return guest.said[: wire.NONCE_BYTES]

    def welcome(self, guest: Guest, nonce: bytes) -> None:
        """Open a session for a holder of the key."""
        connection, session = guest.socket, os.urandom(16)
        connection.setblocking(False)
        self.selector.register(connection, selectors.EVENT_READ, self.hear)
        self.sessions[connection] = session
        self.arrived[session] = 0
        try:
            connection.send(wire.welcome(self.key, nonce, session, self.udp_port))
        except OSError:
            self.close(connection)

    def hear(self, connection: socket.socket) -> None:
        """Answer what a holder of the key asks."""
        try:
            data = connection.recv(256)
            came = self.clock()
            if not data:
                self.close(connection)
            else:
                self.answer(connection, data, came)
        except OSError:
            self.close(connection)

    def answer(self, connection: socket.socket, data: bytes, came: int) -> None:
        """Tell the time, or how many datagrams have come."""
        if data == wire.PING:
            connection.send(wire.CLOCKS.pack(came, self.clock()))
        elif data == wire.COUNT:
            # What came while this process was not given time is in the socket still: not lost.
            while self.echo(self.udp):
                pass
            count = self.arrived[self.sessions[connection]]
            connection.send(wire.COUNTS.pack(count, wire.dropped(self.udp) + self.unsent))
        else:
            self.close(connection)

    def echo(self, udp: socket.socket) -> bool:
        """Send datagrams of known sessions back; tell whether more may be waiting."""
        for _ in range(AT_ONCE):
            try:
                data, sender = udp.recvfrom(2048)
            except OSError:
                return False
            session = data[:16]
            if len(data) == wire.DATAGRAM.size and session in self.arrived:
                try:
                    udp.sendto(data, sender)
                    self.arrived[session] += 1
                except OSError:  # this host's own queue is full
                    self.unsent += 1
        return True

    def close(self, connection: socket.socket) -> None:
        """Let one of them go."""
        self.selector.unregister(connection)
        self.arrived.pop(self.sessions.pop(connection, b""), None)
        connection.close()


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
