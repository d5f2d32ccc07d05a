"""Try many TCP connections at once, and say of each how it went."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections import deque
from contextlib import suppress

from ..cluster.door import allow_descriptors
from .wire import socket_for

Target = tuple[str, int]  # address, port

CONNECTED = "connected"
REFUSED = "refused"
TIMED_OUT = "timed_out"
UNREACHABLE = "unreachable"
FORBIDDEN = "forbidden"
KINDS = {
    0: CONNECTED,
    errno.ECONNREFUSED: REFUSED,
    # The peer took the connection and threw it away: the kernel's queue, or a firewall's reset.
    errno.ECONNRESET: REFUSED,
    errno.ETIMEDOUT: TIMED_OUT,
    errno.ENETUNREACH: UNREACHABLE,
    errno.EHOSTUNREACH: UNREACHABLE,
    errno.ENETDOWN: UNREACHABLE,
    errno.EHOSTDOWN: UNREACHABLE,
    # This host's own firewall says no.
    errno.EPERM: FORBIDDEN,
    errno.EACCES: FORBIDDEN,
}
# What other programs of the process may need.
SPARE_DESCRIPTORS = 64
MOST_AT_ONCE = 4096
# Where 2 % of packets are lost, two tries of hundreds of connections call a port blocked at times.
TRIES = 3


def connect_all(targets: list[Target], seconds: float) -> dict[Target, str]:
    """Return connected, refused, timed_out, unreachable or forbidden for every target.

    What does not connect is tried anew, from another port of this host.
    """
    found: dict[Target, str] = {}
    for _ in range(TRIES):
        found.update(_round([one for one in targets if found.get(one) != CONNECTED], seconds))
    return found


def _round(targets: list[Target], seconds: float) -> dict[Target, str]:
    at_once = max(1, min(MOST_AT_ONCE, allow_descriptors() - SPARE_DESCRIPTORS))
    found: dict[Target, str] = {}
    waiting: deque[tuple[float, Target, socket.socket]] = deque()
    rest = deque(targets)
    with selectors.DefaultSelector() as selector:
        while rest or selector.get_map():
            while rest and len(selector.get_map()) < at_once:
                target = rest.popleft()
                made = socket_for(target[0], socket.SOCK_STREAM)
                code = made.connect_ex(target)
                if code == errno.EINPROGRESS:
                    selector.register(made, selectors.EVENT_WRITE, target)
                    waiting.append((time.monotonic() + seconds, target, made))
                else:
                    found[target] = kind(code)
                    made.close()
            while waiting and waiting[0][1] in found:
                waiting.popleft()
            if not waiting:
                continue
            # Who is given no time after it looks must look again before it calls one late.
            now = time.monotonic()
            for key, _ in selector.select(max(0.0, waiting[0][0] - now)):
                made = key.fileobj  # type: ignore[assignment]  # sockets alone are registered
                found[key.data] = kind(made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                selector.unregister(made)
                made.close()
            while waiting and waiting[0][0] <= now:
                _, target, made = waiting.popleft()
                if target not in found:
                    found[target] = TIMED_OUT
                    with suppress(KeyError):
                        selector.unregister(made)
                    made.close()
    return found


def kind(code: int) -> str:
    """Return in one word what an error number of connect means."""
    return KINDS.get(code, UNREACHABLE)
