"""Let in who proves the cluster's key, however many others connect and say nothing, or anything.

One thread watches all who have not proven it. Each has seconds and few bytes for that, and there is
room for a number of them: where it is full, the source that takes most of it loses its oldest. Only
who has proven the key takes what is scarce: a slot, a thread, a rank's place.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

PROOF_SECONDS = 5.0
MOST_BYTES = 8192
MOST_BYTES_PROVEN = 1 << 22
MOST_GUESTS = 4096
AT_ONCE = 64
PAUSE_SECONDS = 0.02
# Of what the process may open, a part stays for what it works with.
SPARE = 64


class NotAdmitted(Exception):
    """A guest is sent away, with an answer or without one."""

    def __init__(self, why: str, answer: bytes = b"") -> None:
        super().__init__(why)
        self.answer = answer


@dataclass(eq=False)
class Guest:
    """A connection whose other side has not proven the key yet."""

    socket: socket.socket
    address: str
    deadline: float
    said: bytes = b""
    # What the one who judges keeps of it.
    notes: dict[str, Any] = field(default_factory=dict)
    proven: bool = False


def nobody(why: str, guest: Guest) -> None:
    """Tell nobody."""


class Door:
    """The listening sockets of one program, and the guests at them.

    greet returns what a guest is sent first. judge returns what a guest is admitted as, None while
    more has to come, or raises NotAdmitted; it may mark a guest as proven, who then makes room for
    others and has longer. admit takes over the connection, which blocks from then on unless the
    one who admits decides otherwise. The selector may be shared: call the data of each key that is
    ready with its socket, and `expire` now and then.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        judge: Callable[[Guest], Any],
        admit: Callable[[Guest, Any], None],
        greet: Callable[[Guest], bytes] = lambda guest: b"",
        turned_away: Callable[[str, Guest], None] = nobody,
        seconds: float = PROOF_SECONDS,
        patience: float = 30.0,
    ) -> None:
        """Watch nothing yet."""
        self.selector, self.judge, self.admit = selector, judge, admit
        self.greet, self.turned_away = greet, turned_away
        self.seconds, self.patience = seconds, patience
        self.most = max(AT_ONCE, min(MOST_GUESTS, allow_descriptors() // 2 - SPARE))
        self.guests: dict[socket.socket, Guest] = {}
        # By source, oldest first: all have the same time.
        self._unproven: dict[str, OrderedDict[Guest, None]] = {}
        self._count = 0
        self._proven: OrderedDict[Guest, None] = OrderedDict()
        self.accepted = 0

    def watch(self, listener: socket.socket) -> None:
        """Let guests come to a listening socket."""
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)

    def turn(self, seconds: float) -> None:
        """Wait so long at most for something to happen, and see to it."""
        for key, _ in self.selector.select(min(seconds, self.expire())):
            # One answer may have closed what the next event is about.
            if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]  # sockets alone are registered
                key.data(key.fileobj)

    def accept(self, listener: socket.socket) -> None:
        """Take those who knock."""
        for _ in range(AT_ONCE):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left, or the guest has gone already
                if not self._count:
                    time.sleep(PAUSE_SECONDS)  # until one of those who are in has gone
                    return
                self._make_room()
                continue
            self.accepted += 1
            connection.setblocking(False)
            guest = Guest(connection, address[0], time.monotonic() + self.seconds)
            self.guests[connection] = guest
            self._unproven.setdefault(guest.address, OrderedDict())[guest] = None
            self._count += 1
            self.selector.register(connection, selectors.EVENT_READ, self.hear)
            if self._count > self.most:
                self._make_room()
            try:
                first = self.greet(guest)
                if first:
                    connection.send(first)
            except OSError:  # it has gone, or was its source's oldest itself
                if connection in self.guests:
                    self._drop(guest)

    def hear(self, connection: socket.socket) -> None:
        """Read what a guest says, and judge it."""
        guest = self.guests[connection]
        try:
            data = connection.recv(MOST_BYTES)
            if not data:
                raise NotAdmitted("it hung up")
            guest.said += data
            known = guest.proven
            result = self.judge(guest)
            if guest.proven and not known:
                self._trust(guest)
            most = MOST_BYTES_PROVEN if guest.proven else MOST_BYTES
            if result is None and len(guest.said) > most:
                raise NotAdmitted(f"more than {most} bytes")
        except BlockingIOError:
            return
        except NotAdmitted as error:
            with suppress(OSError):
                connection.send(error.answer)
            self._refuse(guest, str(error))
            return
        except OSError as error:
            self._refuse(guest, error.strerror or str(error))
            return
        except Exception as error:  # whatever somebody sends is about that one alone
            self._refuse(guest, f"{type(error).__name__}: {error}")
            return
        if result is not None:
            self._leave(guest)
            connection.setblocking(True)
            self.admit(guest, result)

    def expire(self) -> float:
        """Send away whose time is over; return the seconds until the next one's is, 1 at most."""
        now, following = time.monotonic(), 1.0
        for ones in (self._proven, *list(self._unproven.values())):
            while ones:
                guest = next(iter(ones))
                if guest.deadline > now:
                    following = min(following, guest.deadline - now)
                    break
                self._refuse(guest, "no answer in time" if guest.proven else "no proof in time")
        return following

    def close(self) -> None:
        """Send all guests away."""
        for guest in list(self.guests.values()):
            self._drop(guest)

    def _make_room(self) -> None:
        """Send away the oldest guest of the source that has most of them."""
        source = max(self._unproven, key=lambda one: len(self._unproven[one]))
        self._refuse(next(iter(self._unproven[source])), "too many of its source")

    def _refuse(self, guest: Guest, why: str) -> None:
        self._drop(guest)
        self.turned_away(why, guest)

    def _drop(self, guest: Guest) -> None:
        self._leave(guest)
        guest.socket.close()

    def _leave(self, guest: Guest) -> None:
        self.selector.unregister(guest.socket)
        del self.guests[guest.socket]
        self._forget(guest)

    def _trust(self, guest: Guest) -> None:
        self._forget(guest)
        self._proven[guest] = None
        guest.deadline = time.monotonic() + self.patience

    def _forget(self, guest: Guest) -> None:
        self._proven.pop(guest, None)
        ones = self._unproven.get(guest.address, OrderedDict())
        if guest in ones:
            del ones[guest]
            self._count -= 1
        if not ones:
            self._unproven.pop(guest.address, None)


def allow_descriptors() -> int:
    """Let this process open as many files as it may, and return how many that are."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft > 0 else 1 << 20
