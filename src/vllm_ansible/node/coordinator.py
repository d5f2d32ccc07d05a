"""Lead the ranks of a measurement: wait until all are there, ask, and name who does not answer."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from .channel import Channel, ChannelError, accept

Message = dict[str, Any]


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
        refused: list[str] = []
        while len(self.channels) < len(self.places):
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, address = listener.accept()
            except socket.timeout:
                self._missing(refused, seconds)
            try:
                channel = accept(connection, key)
                hello = channel.receive(30.0) or {}
                rank = self.rank_of[str(hello.get("host")), int(hello.get("local_rank", -1))]
            except (ChannelError, TimeoutError, OSError, KeyError, ValueError) as error:
                refused.append(f"{address[0]}: {error}")
                connection.close()
                continue
            self.channels[rank], self.hellos[rank] = channel, hello
            if "error" in hello:
                self._failed(rank, "begin", "every rank opens its device", hello)
            told(len(self.channels), len(self.places))

    def _missing(self, refused: Sequence[str], seconds: float) -> NoReturn:
        absent = [self.places[rank] for rank in self.rank_of.values() if rank not in self.channels]
        hosts = sorted({host for host, _ in absent})
        also = f"; refused: {'; '.join(refused)}" if refused else ""
        raise CollectiveError(
            f"{len(absent)} of {len(self.places)} ranks did not come",
            expected=f"all ranks within {seconds:g} s",
            found=f"none of {', '.join(f'rank {local} of {host}' for host, local in absent)}{also}",
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
                    answers[rank] = self._answer(rank, doing)
                    del waiting[rank]
                    selector.unregister(self.channels[rank].socket)
        return answers

    def ask_all(self, **message: Any) -> dict[int, Message]:
        """Ask every rank the same."""
        return self.ask(dict.fromkeys(range(len(self.places)), message))

    def _answer(self, rank: int, doing: str) -> Message:
        try:
            answer = self.channels[rank].receive(self.silence)
        except (ChannelError, TimeoutError, OSError):
            answer = None
        if answer is None:
            self._died(rank, doing)
        if "error" in answer:
            self._failed(rank, doing, f"every rank does its part of {doing}", answer)
        return answer

    def _failed(self, rank: int, doing: str, expected: str, answer: Message) -> NoReturn:
        host, local = self.places[rank]
        raise CollectiveError(
            f"rank {local} of {host} failed to {doing}: {answer['error']}",
            expected=expected,
            found=answer["error"],
            where=host,
            fix="see the causes named; the ranks' logs say more",
        )

    def _died(self, rank: int, doing: str) -> NoReturn:
        host, local = self.places[rank]
        raise CollectiveError(
            f"rank {local} of {host} ended in the middle of {doing}",
            expected="every rank lives to the end",
            found="its connection closed",
            where=host,
            fix="read the log of its task, collective-ranks; dmesg tells what the kernel killed",
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
