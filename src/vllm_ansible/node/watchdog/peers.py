"""Whether other hosts of an engine are there: whether they answer, or refuse, a connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Optional

from .finding import Finding
from .settings import Engine, Peer

EVERY_SECONDS = 3.0
TIMEOUT_SECONDS = 2.0
# One lost packet is no lost host.
MISSES = 4


def answers(peer: Peer) -> bool:
    """Tell whether a host answers; that it refuses is an answer too."""
    try:
        with socket.create_connection((peer.address, peer.port), TIMEOUT_SECONDS):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


class Reached:
    """One host. Only one that did answer can be lost: a firewall may drop what it knows not."""

    def __init__(
        self, engine: Engine, peer: Peer, answers: Callable[[Peer], bool] = answers
    ) -> None:
        self.engine, self.peer, self.answers = engine, peer, answers
        self.once = False
        self.misses = 0
        self.since = 0.0

    def look(self) -> None:
        """Try once."""
        began = time.time()
        if self.answers(self.peer):
            self.once, self.misses = True, 0
            return
        self.since = began if self.misses == 0 else self.since
        self.misses += 1

    def judge(self) -> Optional[Finding]:
        """Return that the host is lost, None while it is not."""
        if not self.once or self.misses < MISSES:
            return None
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


def follow(reached: Iterable[Reached]) -> None:
    """Look at each host for as long as the program lives, each in a thread of its own."""

    def on(one: Reached) -> None:
        while True:
            one.look()
            time.sleep(EVERY_SECONDS)

    for one in reached:
        threading.Thread(target=on, args=(one,), daemon=True).start()
