"""Take a file from peers, piece by piece; who sends something wrong, or nothing, is passed over."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Callable
from urllib.parse import quote

from . import sender
from .incoming import Incoming, PeerError, Withdrawn, Wrong
from .manifest import PIECE, File
from .shelf import DIGEST_BYTES, Shelf
from .signing import header

# A peer says something every second, also while it has nothing.
SILENCE_SECONDS = 15.0
# Who has a file, but may be proving it anew and find it damaged like this one's.
BESIDE_SECONDS = 60.0
# Hosts do not all begin in the same moment.
JOIN_SECONDS = 45.0
RETRY_SECONDS = 0.5
# A file that came whole and wrong is taken anew so often, before the hub itself is asked.
ROUNDS = 2
# The kernel gathers so many bytes before it wakes the reader, where as many are to come.
TOGETHER = 1 << 16


@dataclass(frozen=True)
class Peer:
    """One host that passes files on.

    patience: for how many seconds it may have nothing. Without bound where it gets a file before
    this host does; two hosts that wait for each other would wait for ever.
    """

    host: str
    address: str
    port: int
    patience: float = float("inf")


def way_of(hosts: Mapping[str, Sequence[str]], known: Mapping[str, Peer]) -> list[Peer]:
    """Return whom to ask for a file, in order: those before this host, then those beside it."""
    beside = [replace(known[host], patience=BESIDE_SECONDS) for host in hosts["beside"]]
    return [*(known[host] for host in hosts["before"]), *beside]


@dataclass
class Line:
    """What joins this host to its peers, and what happened on it."""

    key: bytes
    source: str
    arrived: Callable[[Incoming], None]
    began: float = field(default_factory=time.monotonic)
    # Why peers were passed over, in words, the latest last.
    troubles: list[str] = field(default_factory=list)


def receive(shelf: Shelf, file: File, peers: Sequence[Peer], line: Line) -> bool:
    """Take a file from the first peer that can send it; tell whether it came whole and right.

    peers: who gets it before this host does, the nearest first. What one of them sent and was right
    stays, whoever sends the rest.
    """
    with Incoming(shelf, file) as incoming:
        for _ in range(ROUNDS):
            line.arrived(incoming)
            for peer in peers:
                if _whole_from(peer, incoming, line):
                    incoming.keep()
                    return True
            if incoming.doubted:
                # One of them may have sent wrong bytes with a digest that fits them.
                incoming.restart()
    return False


def _whole_from(peer: Peer, incoming: Incoming, line: Line) -> bool:
    """Take what is missing from one peer, as long as it makes sense."""
    while True:
        try:
            _take(peer, incoming, line)
            return True
        except Wrong as error:
            line.troubles.append(f"{peer.host}: {incoming.file.name}: {error}")
            incoming.doubted = True
            return False
        except Withdrawn as error:
            line.troubles.append(f"{peer.host}: {incoming.file.name}: {error}")
            incoming.restart()
            return False
        except (OSError, http.client.HTTPException, PeerError) as error:
            if time.monotonic() - line.began < JOIN_SECONDS:
                time.sleep(RETRY_SECONDS)
                continue
            what = str(error) or type(error).__name__
            line.troubles.append(f"{peer.host} ({peer.address}:{peer.port}): {what}")
            return False


def _take(peer: Peer, incoming: Incoming, line: Line) -> None:
    """Take the pieces that are missing from one peer."""
    file, slug = incoming.file, os.path.basename(incoming.shelf.final)
    if incoming.beginning.pieces == file.pieces:
        return
    path = f"/{quote(slug, safe='')}/{file.key}?piece={incoming.beginning.pieces}"
    connection = http.client.HTTPConnection(
        peer.address, peer.port, timeout=SILENCE_SECONDS, source_address=(line.source, 0)
    )
    with closing(connection):
        connection.request("GET", path, headers={"Authorization": header(line.key, path)})
        # Of its own, since the response closes the connection's once its headers are there.
        with closing(connection.sock.dup()) as wire, connection.getresponse() as answer:
            if answer.status != 200:
                raise PeerError(f"answers {answer.status} {answer.reason}")
            frames = Frames(wire, answer.fp.peek())
            buffer = memoryview(bytearray(PIECE))
            last = time.monotonic()
            while incoming.beginning.pieces < file.pieces:
                piece = buffer[: file.length(incoming.beginning.pieces)]
                digest = frames.next(piece)
                if digest:
                    incoming.take(piece, digest)
                    line.arrived(incoming)
                    last = time.monotonic()
                elif time.monotonic() - last > peer.patience:
                    raise PeerError("has nothing")


class Frames:
    """What a peer sends, read so that a piece that comes packet by packet wakes nobody for each."""

    def __init__(self, wire: socket.socket, begun: bytes) -> None:
        """Go on after the bytes that came with the headers."""
        self._wire, self._begun = wire, memoryview(begun)

    def next(self, piece: memoryview) -> bytes:
        """Read a frame; a piece is read into its place and its digest returned."""
        tag = self._read(memoryview(bytearray(1)))
        if tag == sender.WAIT:
            return b""
        if tag == sender.AGAIN:
            raise Withdrawn("it starts again from the beginning")
        if tag != sender.PIECE:
            raise PeerError("sends an unknown frame")
        digest = self._read(memoryview(bytearray(DIGEST_BYTES)))
        self._read(piece)
        return bytes(digest)

    def _read(self, into: memoryview) -> memoryview:
        """Fill a buffer, with nothing of what follows it."""
        filled = min(len(self._begun), len(into))
        into[:filled], self._begun = self._begun[:filled], self._begun[filled:]
        while filled < len(into):
            together = min(len(into) - filled, TOGETHER)
            self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, together)
            count = self._wire.recv_into(into[filled:])
            if not count:
                raise PeerError("ends in the middle")
            filled += count
        return into
