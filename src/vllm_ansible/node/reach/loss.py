"""Count the datagrams that are lost to each peer and from it."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from typing import Any

from . import wire
from .exchange import NoAnswer, Session

DATAGRAMS = 400
# A quarter of 10 Mbit/s, the slowest link that this is meant for: the answers to what others send
# take another quarter, and the rest is left to whoever works there.
BITS_PER_SECOND = 2.5e6
# 64 bytes, and what UDP, IPv6, Ethernet, its preamble and its gap add.
BITS_OF_ONE = (64 + 8 + 40 + 18 + 20) * 8
BURST = 16
QUIET_SECONDS = 0.3
LONGEST_QUIET_SECONDS = 2.0


def losses(sessions: dict[str, Session], round_trip_seconds: float) -> dict[str, dict[str, Any]]:
    """Return for every peer how many datagrams were sent, how many it got and how many came back.

    Datagrams that a kernel dropped because its program was not given time are counted apart, as
    `dropped_there` and `dropped_here`: they were not lost on the way.
    """
    if not sessions:
        return {}
    sockets = {peer: _socket(session) for peer, session in sessions.items()}
    sent = dict.fromkeys(sessions, 0)
    back = dict.fromkeys(sessions, 0)
    with selectors.DefaultSelector() as selector:
        for peer, made in sockets.items():
            selector.register(made, selectors.EVENT_READ, peer)
        _send(sessions, sockets, selector, sent, back)
        quiet = min(LONGEST_QUIET_SECONDS, QUIET_SECONDS + 2 * round_trip_seconds)
        while back != sent and _receive(selector, sessions, back, quiet):
            pass
        counted = {}
        for peer, session in sessions.items():
            with suppress(OSError, NoAnswer):  # a session that broke measured nothing
                counted[peer] = session.counts()
        # A peer that was not given time sends back what it had not read before it counts.
        on_the_way = True
        while on_the_way and any(back[peer] < arrived for peer, (arrived, _) in counted.items()):
            on_the_way = _receive(selector, sessions, back, quiet) > 0
    found = {}
    for peer, made in sockets.items():
        if peer in counted:
            arrived, there = counted[peer]
            found[peer] = {
                "sent": sent[peer],
                "arrived": arrived,
                "returned": back[peer],
                "dropped_there": there,
                "dropped_here": wire.dropped(made),
            }
        made.close()
    return found


def _socket(session: Session) -> socket.socket:
    made = wire.socket_for(session.address, socket.SOCK_DGRAM)
    made.connect((session.address, session.udp_port))
    return made


def _send(
    sessions: dict[str, Session],
    sockets: dict[str, socket.socket],
    selector: selectors.BaseSelector,
    sent: dict[str, int],
    back: dict[str, int],
) -> None:
    """Send all datagrams, peer by peer in turn, no faster than a slow link carries."""
    pause = BITS_OF_ONE / BITS_PER_SECOND
    due = time.monotonic()
    queue = [(peer, number) for number in range(DATAGRAMS) for peer in sessions]
    for peer, number in queue:
        # Who was not given time does not catch up at once: a burst would fill a short queue.
        due = max(due + pause, time.monotonic() - BURST * pause)
        while (left := due - time.monotonic()) > 0:
            _receive(selector, sessions, back, left)
        with suppress(OSError):
            sockets[peer].send(wire.DATAGRAM.pack(sessions[peer].name, number))
            sent[peer] += 1


def _receive(
    selector: selectors.BaseSelector,
    sessions: dict[str, Session],
    back: dict[str, int],
    seconds: float,
) -> int:
    """Count what has come back, and return how much that was."""
    came = 0
    for key, _ in selector.select(seconds):
        with suppress(OSError):
            while True:
                data = key.fileobj.recv(2048)  # type: ignore[union-attr]  # sockets alone are registered
                if len(data) == wire.DATAGRAM.size and data[:16] == sessions[key.data].name:
                    back[key.data] += 1
                    came += 1
    return came
