"""Connections of others on the data plane: some say nothing, some say anything, all come again."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from vllm_ansible.node import launcher
from vllm_ansible.node.cluster.door import allow_descriptors

WORDS = (
    b"GET /model/weights?piece=0 HTTP/1.1\r\nAuthorization: VLLM-Ansible 1 2 \xff\r\n\r\n",
    b'{"nonce": "1", "proof": "\xc3\xa9"}\n',
    b"[" * 4000 + b"\n",
    b"\0" * 48,
    b"GET / HTTP/1.1\r\nHost: ",
)
# Each says something, or comes again, so often.
SECONDS = 0.5


class Crowd:
    """So many connections to each place, kept up."""

    def __init__(self, places: Sequence[tuple[str, int]], silent: int, talkative: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.later: deque[tuple[float, tuple[str, int], bool]] = deque()
        self.talking: deque[tuple[float, socket.socket, int]] = deque()
        for place in places:
            for number in range(silent + talkative):
                self.come(place, number < talkative)

    def come(self, place: tuple[str, int], talks: bool) -> None:
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex(place)
        self.selector.register(made, selectors.EVENT_READ, (place, talks))
        if talks:
            self.talking.append((time.monotonic() + SECONDS, made, hash(made) % len(WORDS)))

    def turn(self) -> None:
        """See who was sent away, and let those talk whose time has come."""
        for key, _ in self.selector.select(0.02):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                gone = not made.recv(4096)
            except OSError:
                gone = True
            if gone:
                self.selector.unregister(made)
                made.close()
                self.later.append((time.monotonic() + SECONDS, *key.data))
        now = time.monotonic()
        while self.later and self.later[0][0] <= now:
            _, place, talks = self.later.popleft()
            self.come(place, talks)
        while self.talking and self.talking[0][0] <= now:
            _, made, word = self.talking.popleft()
            if made.fileno() >= 0:
                with suppress(OSError):
                    made.send(WORDS[word])
                self.talking.append((now + SECONDS, made, word))


@contextmanager
def crowd(places: Sequence[tuple[str, int]], silent: int, talkative: int) -> Iterator[None]:
    """Keep up so many connections to each place, from a process of their own."""
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            launcher.die_with_parent(parent)
            os.nice(5)
            allow_descriptors()
            ones = Crowd(places, silent, talkative)
            os.write(writer, b"!")
            while True:
                ones.turn()
        finally:
            os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 1), "the crowd could not be made"
        time.sleep(2 * SECONDS)  # all of them have come, and said something
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the crowd left before the end"
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
