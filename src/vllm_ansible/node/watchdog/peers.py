"""Whether other hosts of an engine answer, or refuse, a connection, and how long that takes."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Optional

from .finding import Finding
from .settings import Engine, Peer

EVERY_SECONDS = 3.0
TIMEOUT_SECONDS = 2.0
# One lost packet is no lost host.
MISSES = 4
# An answer takes this in each of so many looks: no queue of a switch does, nor a healthy route.
SLOW_SECONDS, SLOW_FACTOR = 0.1, 4.0


def answers(peer: Peer) -> Optional[float]:
    """Return how long a host takes to answer, None if it does not; a refusal is an answer, too.

    What this host itself takes for a connection is not counted: its processors may be busy.
    """
    taken = _connected(peer.address, peer.port)
    if taken is None:
        return None
    own = _connected("127.0.0.1", peer.port)
    return max(0.0, taken - (own or 0.0))


def _connected(address: str, port: int) -> Optional[float]:
    began = time.monotonic()
    try:
        socket.create_connection((address, port), TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        pass
    except OSError:
        return None
    return time.monotonic() - began


class Reached:
    """One host. Only one that did answer can be lost: a firewall may drop what it knows not."""

    def __init__(
        self, engine: Engine, peer: Peer, answers: Callable[[Peer], Optional[float]] = answers
    ) -> None:
        self.engine, self.peer, self.answers = engine, peer, answers
        self.once = False
        self.misses = 0
        # The shortest time to an answer, and those of the last looks.
        self.best = float("inf")
        self.last: deque[tuple[float, float]] = deque(maxlen=MISSES)
        self.since = 0.0

    def look(self) -> None:
        """Try once."""
        began = time.time()
        taken = self.answers(self.peer)
        if taken is not None:
            self.once, self.misses = True, 0
            self.best = min(self.best, taken)
            self.last.append((began, taken))
            return
        self.last.clear()
        self.since = began if self.misses == 0 else self.since
        self.misses += 1

    def judge(self) -> Optional[Finding]:
        """Return that the host is lost or its link slow, None while neither is."""
        if not self.once or self.misses < MISSES:
            return self._slow()
        return Finding(
            key=f"unreachable {self.engine.name} {self.peer.host}",
            kind="unreachable",
            engine=self.engine.name,
            process="",
            since=self.since,
            found=f"{self.peer.host} ({self.peer.address}), which has ranks of {self.engine.name}, "
            f"has not answered {self.misses} connections in a row, as it did before",
            fix=f"see whether {self.peer.host} runs and its link is up; playbooks/replace.yml puts "
            "another host in its place",
        )

    def _slow(self) -> Optional[Finding]:
        last = list(self.last)
        if len(last) < MISSES:
            return None
        least = min(taken for _, taken in last)
        if least < max(SLOW_SECONDS, SLOW_FACTOR * self.best):
            return None
        return Finding(
            key=f"slow {self.engine.name} {self.peer.host}",
            kind="slow",
            engine=self.engine.name,
            process="",
            since=last[0][0],
            found=f"the link to {self.peer.host} ({self.peer.address}), which has ranks of "
            f"{self.engine.name}, is slow: an answer takes {1000 * least:.0f} ms or more, "
            f"{1000 * self.best:.1f} ms before",
            fix="look at the errors and the traffic of the interfaces of both hosts; "
            "playbooks/verify.yml measures the link once the engine is stopped",
        )


def follow(reached: Iterable[Reached]) -> None:
    """Look at each host for as long as the program lives, each in a thread of its own."""

    def on(one: Reached) -> None:
        while True:
            one.look()
            time.sleep(EVERY_SECONDS)

    for one in reached:
        threading.Thread(target=on, args=(one,), daemon=True).start()
