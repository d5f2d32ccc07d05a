"""A channel of JSON lines between programs of one cluster, opened only to who has its key.

Each side proves that it holds the key without sending it: nothing is answered to anybody else.
The program of the ranks uses this file too, so it imports nothing of this package.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
from typing import Any, Optional

# A line is a request or some figures, never data.
MOST_BYTES = 1 << 22
PURPOSE = b"vllm-ansible collectives"


class ChannelError(Exception):
    """The other side is not who it must be, or said what cannot be read."""


def key_of(secret: bytes) -> bytes:
    """Return the key of these channels, which tells nothing of the secret it is made from."""
    return hmac.new(secret.strip(), PURPOSE, hashlib.sha256).digest()


class Channel:
    """One open connection; `socket` may be waited for, and `pending` tells what is read already."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.buffer = b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    @property
    def pending(self) -> bool:
        """Tell whether a whole message was read before it was asked for."""
        return b"\n" in self.buffer

    def receive(self, seconds: Optional[float] = None) -> Optional[dict[str, Any]]:
        """Return the next message, None when the other side has gone.

        Raises TimeoutError when nothing whole came within so many seconds, ChannelError for what
        is no message.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self.pending:
            if len(self.buffer) > MOST_BYTES:
                raise ChannelError(f"a message of more than {MOST_BYTES} bytes")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            try:
                more = self.socket.recv(65536)
            except socket.timeout as error:  # an alias of TimeoutError only from Python 3.10 on
                raise TimeoutError from error
            except ConnectionError:
                return None
            finally:
                self.socket.settimeout(None)
            if not more:
                return None
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ChannelError("a line that is no JSON") from error
        if not isinstance(message, dict):
            raise ChannelError("JSON that is no mapping")
        return message

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _proof(key: bytes, role: bytes, first: str, second: str) -> str:
    text = b"|".join((role, first.encode(), second.encode()))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def accept(connection: socket.socket, key: bytes, seconds: float = 5.0) -> Channel:
    """Return the channel to whoever has connected; raise ChannelError unless it has the key."""
    channel = Channel(connection)
    mine = os.urandom(16).hex()
    channel.send({"nonce": mine})
    answer = _expect(channel, seconds)
    theirs = str(answer.get("nonce", ""))
    if not hmac.compare_digest(_proof(key, b"rank", mine, theirs), str(answer.get("proof", ""))):
        raise ChannelError("it does not have this cluster's key")
    channel.send({"proof": _proof(key, b"coordinator", theirs, mine)})
    return channel


def connect(address: tuple[str, int], key: bytes, source: str, seconds: float = 5.0) -> Channel:
    """Return a channel to the coordinator, from the given address; both prove to have the key.

    Raises OSError when nobody listens there, ChannelError when it is not the coordinator.
    """
    opened = socket.create_connection(address, timeout=seconds, source_address=(source, 0))
    opened.settimeout(None)
    channel = Channel(opened)
    mine = os.urandom(16).hex()
    theirs = str(_expect(channel, seconds).get("nonce", ""))
    channel.send({"nonce": mine, "proof": _proof(key, b"rank", theirs, mine)})
    answer = _expect(channel, seconds)
    if not hmac.compare_digest(
        _proof(key, b"coordinator", mine, theirs), str(answer.get("proof", ""))
    ):
        raise ChannelError("it does not have this cluster's key")
    return channel


def _expect(channel: Channel, seconds: float) -> dict[str, Any]:
    try:
        message = channel.receive(seconds)
    except TimeoutError as error:
        raise ChannelError(f"no answer within {seconds:g} s") from error
    if message is None:
        raise ChannelError("it hung up")
    return message
