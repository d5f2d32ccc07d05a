"""Lead the ranks of a measurement: wait until all are there, ask, and name who does not answer."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, NoReturn, Optional

from ..cluster.door import Door, Guest, NotAdmitted
from .channel import Channel, ChannelError, answer_to, line_of, message_of

Message = dict[str, Any]
REFUSED_TOLD = 8
# The connection of a rank that was killed may close after others have said what that did to them.
END_SECONDS = 2.0


class CollectiveError(Exception):
    """A rank is missing, has died, or failed. `details` has expected, found, where and fix."""

    def __init__(self, words: str, **details: Any) -> None:
        super().__init__(words)
        self.details = details


class Coordinator:
    """The ranks in order, host by host as they are given, and a channel to each.

    hosts: how many ranks each host has, by its name in the inventory.
    """

    def __init__(self, hosts: Mapping[str, int], silence: float = 60.0) -> None:
        self.silence = silence
        self.places = [(host, local) for host, count in hosts.items() for local in range(count)]
        self.rank_of = {place: rank for rank, place in enumerate(self.places)}
        self.hosts = {
            host: [self.rank_of[host, local] for local in range(count)]
            for host, count in hosts.items()
        }
        self.channels: dict[int, Channel] = {}
        self.hellos: dict[int, Message] = {}

    def gather(
        self,
        listener: socket.socket,
        key: bytes,
        seconds: float,
        told: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """Accept all ranks; raise CollectiveError that names the missing ones after so long.

        One that says that it cannot begin is an error at once.
        """
        deadline = time.monotonic() + seconds
        refused: Counter[str] = Counter()

        def greet(guest: Guest) -> bytes:
            guest.notes["nonce"] = os.urandom(16).hex()
            return line_of({"nonce": guest.notes["nonce"]})

        def judge(guest: Guest) -> Optional[tuple[int, Message]]:
            return self._judge(guest, key)

        def admit(guest: Guest, result: tuple[int, Message]) -> None:
            rank, hello = result
            if rank in self.channels:  # it has come anew
                self.channels[rank].close()
            self.channels[rank], self.hellos[rank] = Channel(guest.socket, guest.said), hello

        with selectors.DefaultSelector() as selector:
            door = Door(
                selector,
                judge,
                admit,
                greet,
                lambda why, guest: refused.update({f"{guest.address}: {why}": 1}),
            )
            with closing(door):
                door.watch(listener)
                while len(self.channels) < len(self.places):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        self._missing(refused, seconds)
                    came = len(self.channels)
                    door.turn(left)
                    for rank, hello in self.hellos.items():
                        if "error" in hello:
                            self._failed(rank, "begin", "every rank opens its device", hello)
                    if len(self.channels) > came:
                        told(len(self.channels), len(self.places))

    def _judge(self, guest: Guest, key: bytes) -> Optional[tuple[int, Message]]:
        """Return the rank that a guest is, and its hello; None while more has to come."""
        while b"\n" in guest.said:
            line, _, guest.said = guest.said.partition(b"\n")
            try:
                message = message_of(line)
                if guest.proven:
                    place = str(message.get("host")), int(message.get("local_rank", -1))
                    return self.rank_of[place], message
                answer = answer_to(key, guest.notes["nonce"], message)
            except (ChannelError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise NotAdmitted(str(error)) from error
            guest.proven = True
            guest.socket.send(line_of(answer))
        return None

    def _missing(self, refused: Counter[str], seconds: float) -> NoReturn:
        absent = [self.places[rank] for rank in self.rank_of.values() if rank not in self.channels]
        hosts = sorted({host for host, _ in absent})
        most = [f"{why} ({count} times)" for why, count in refused.most_common(REFUSED_TOLD)]
        also = f"; refused: {'; '.join(most)}" if most else ""
        raise CollectiveError(
            f"{len(absent)} of {len(self.places)} ranks did not connect",
            expected=f"all ranks within {seconds:g} s",
            found="no connection from "
            + ", ".join(f"rank {local} of {host}" for host, local in absent)
            + also,
            where=", ".join(hosts),
            fix="read the task log of the ranks on these hosts (logs/, task collective-ranks): "
            "they reach this host on the data plane and import the engine's PyTorch",
        )

    def ask(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Send each of these ranks its message and return their answers.

        Raises CollectiveError when a rank fails or hangs up, or when none has answered for the
        time of silence: then all that are still busy are named.
        """
        doing = str(next(iter(messages.values()))["do"])
        waiting = dict.fromkeys(messages)
        for rank, message in messages.items():
            try:
                self.channels[rank].send(message)
            except OSError:
                self._died(rank, doing)
        answers: dict[int, Message] = {}
        with selectors.DefaultSelector() as selector:
            for rank in messages:
                selector.register(self.channels[rank].socket, selectors.EVENT_READ, rank)
            while waiting:
                ready = [key.data for key, _ in selector.select(self.silence)]
                if not ready:
                    self._silent(list(waiting), doing)
                for rank in ready:
                    del waiting[rank]
                    answers[rank] = self._answer(rank, doing, list(waiting))
                    selector.unregister(self.channels[rank].socket)
        return answers

    def ask_all(self, **message: Any) -> dict[int, Message]:
        """Ask every rank the same."""
        return self.ask(dict.fromkeys(range(len(self.places)), message))

    def _answer(self, rank: int, doing: str, others: Sequence[int]) -> Message:
        try:
            answer = self.channels[rank].receive(self.silence)
        except (ChannelError, TimeoutError, OSError):
            answer = None
        if answer is None:
            self._died(rank, doing)
        if "error" in answer:
            host, local = self.places[rank]
            for dead in self._hung_up(others):
                self._died(dead, doing, f"; rank {local} of {host} failed: {answer['error']}")
            self._failed(rank, doing, f"every rank does its part of {doing}", answer)
        return answer

    def _hung_up(self, ranks: Sequence[int]) -> list[int]:
        """Return the first of these ranks whose connection closes within seconds, if one does."""
        deadline = time.monotonic() + END_SECONDS
        with selectors.DefaultSelector() as selector:
            for rank in ranks:
                selector.register(self.channels[rank].socket, selectors.EVENT_READ, rank)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    try:
                        said = self.channels[key.data].socket.recv(1, socket.MSG_PEEK)
                    except OSError:
                        said = b""
                    if not said:
                        return [int(key.data)]
                    selector.unregister(key.fileobj)
        return []

    def _failed(self, rank: int, doing: str, expected: str, answer: Message) -> NoReturn:
        host, local = self.places[rank]
        raise CollectiveError(
            f"rank {local} of {host} failed to {doing}: {answer['error']}",
            expected=expected,
            found=answer["error"],
            where=host,
            fix="see the causes named; the ranks' logs say more",
        )

    def _died(self, rank: int, doing: str, also: str = "") -> NoReturn:
        host, local = self.places[rank]
        raise CollectiveError(
            f"rank {local} of {host} ended in the middle of {doing}",
            expected="every rank lives to the end",
            found=f"its connection closed{also}",
            where=host,
            fix="read the log of its task, collective-ranks; dmesg shows what the kernel killed",
        )

    def _silent(self, ranks: Sequence[int], doing: str) -> NoReturn:
        busy = [self.places[rank] for rank in ranks]
        hosts = sorted({host for host, _ in busy})
        raise CollectiveError(
            f"no rank has answered for {self.silence:g} s in {doing}",
            expected="progress",
            found=f"{len(busy)} of {len(self.places)} ranks wait for each other",
            where=", ".join(hosts),
            fix="a link between these hosts carries nothing: run the stage verify again, its check "
            "of ports and losses names the link",
        )

    def close(self) -> None:
        """Hang up on all ranks, which ends them."""
        for channel in self.channels.values():
            with suppress(OSError):
                channel.close()
