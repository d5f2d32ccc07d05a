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

    def __init__(self, connection: socket.socket, read: bytes = b"") -> None:
        self.socket = connection
        self.buffer = read
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self.socket.sendall(line_of(message))

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
        return message_of(line)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def message_of(line: bytes) -> dict[str, Any]:
    """Return the message in a line; raise ChannelError for what is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ChannelError("a line that is not JSON") from error
    if not isinstance(message, dict):
        raise ChannelError("JSON that is not a mapping")
    return message


def line_of(message: dict[str, Any]) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


def _bytes(value: object) -> bytes:
    """Return text as bytes: anything may come, also text that is none."""
    return str(value).encode("utf-8", "backslashreplace")


def _proof(key: bytes, role: bytes, first: object, second: object) -> str:
    text = b"|".join((role, _bytes(first), _bytes(second)))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _proves(expected: str, shown: object) -> bool:
    # As bytes: of text, only ASCII can be compared.
    return hmac.compare_digest(expected.encode(), _bytes(shown))


def answer_to(key: bytes, mine: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return our proof for who has answered our nonce; raise ChannelError unless it has the key."""
    theirs = answer.get("nonce", "")
    if not _proves(_proof(key, b"rank", mine, theirs), answer.get("proof", "")):
        raise ChannelError("it does not have this cluster's key")
    return {"proof": _proof(key, b"coordinator", theirs, mine)}


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
    if not _proves(_proof(key, b"coordinator", mine, theirs), answer.get("proof", "")):
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
