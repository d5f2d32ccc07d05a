"""Data ranks meet at the address and port that each of them is given, and live as one.

Rank 0 listens there, as the coordinator of vLLM does; nobody serves before all have come. When one
ends without a word, so do the others: what vLLM's ranks compute together has lost a part.
"""

import os
import socket
import threading
import time
from argparse import Namespace
from contextlib import suppress

from vllm.logger import log

# As long as a rank waits for the others.
JOIN_SECONDS = 1800
READY, END = b"r", b"e"


class Group:
    """The connections of one rank to the others."""

    def __init__(self, args: Namespace) -> None:
        self.size, self.rank = args.data_parallel_size, args.data_parallel_rank
        self.place = (args.data_parallel_address, args.data_parallel_rpc_port)
        if not 0 <= self.rank < self.size:
            raise ValueError(f"data_parallel_rank {self.rank} is not below {self.size}")
        self.others = self._gather() if self.rank == 0 else [self._come()]
        log(f"DP rank {self.rank}: all {self.size} ranks are there")
        for one in self.others:
            threading.Thread(target=self._watch, args=(one,), daemon=True).start()

    def end(self) -> None:
        """Say that this rank ends in good order."""
        for one in self.others:
            with suppress(OSError):  # it may have ended before
                one.sendall(END)

    def _gather(self) -> list[socket.socket]:
        came: dict[int, socket.socket] = {}
        with socket.create_server(self.place) as listening:
            listening.settimeout(JOIN_SECONDS)
            while len(came) < self.size - 1:
                one, (address, _) = listening.accept()
                words = one.recv(100).decode().split()
                # Somebody else may knock at this port.
                if len(words) != 2 or not all(map(str.isdigit, words)):
                    one.close()
                    continue
                number, size = map(int, words)
                if size != self.size or not 0 < number < size or number in came:
                    raise ValueError(f"rank {number} of {size} came from {address}")
                came[number] = one
        for one in came.values():
            one.sendall(READY)
        return list(came.values())

    def _come(self) -> socket.socket:
        until = time.monotonic() + JOIN_SECONDS
        while True:
            try:
                one = socket.create_connection(self.place, timeout=JOIN_SECONDS)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        one.sendall(f"{self.rank} {self.size}".encode())
        if one.recv(1) != READY:
            raise ValueError("rank 0 refused this rank")
        one.settimeout(None)
        return one

    def _watch(self, one: socket.socket) -> None:
        with suppress(OSError):
            if one.recv(1) == END:
                return
        log("EngineDeadError: EngineCore encountered an issue: a data rank is gone")
        os._exit(1)
