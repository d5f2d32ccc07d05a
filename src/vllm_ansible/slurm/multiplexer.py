"""Keep one step to one node open for all that Ansible's workers ask of it.

    python -m vllm_ansible.slurm.multiplexer JOB NODE PYTHON SECONDS

Each task of a play is a process of its own, and a step for each would cost slurmctld several
requests. So the first that needs a node starts this, as ssh does with ControlPersist, and it ends
when nobody has asked for so many seconds, or with its step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from vllm_ansible.node.slurm.agent import CLOSE, frames, is_ours, pack
from vllm_ansible.node.slurm.relay import BEGIN
from vllm_ansible.slurm.step import relay_command, without_wishes

# The last words of a step are kept for whoever asks why it ended.
WORDS_BYTES = 4000
LOOK_SECONDS = 1.0
FIRST_SECONDS = 30.0
# For whoever was on the way when a step ended.
GRACE_SECONDS = 3.0
# Sent to a client, never over the step: that it is served, and why the step ended, as a text.
HELLO, GONE = 7, 8


def address(job: str, node: str) -> str:
    """Return where the multiplexer of a node listens: a name that needs no file."""
    return f"\0vllm-ansible-step-{os.getuid()}-{job}-{node}"


class Client:
    """Whoever asked for one command; what is for it waits here until it reads.

    That is never more than a window's bytes, for the node sends no more before they are taken.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def give(self, frame: bytes | None) -> None:
        """Have a frame sent after those before it; None ends what is sent."""
        self._frames.put(frame)

    def finish(self, frame: bytes, seconds: float) -> None:
        """Send the last words, if it reads them in time."""
        self.give(frame)
        self.give(None)
        self._writer.join(seconds)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := self._frames.get()) is not None:
                self.connection.sendall(frame)


class Multiplexer:
    """One step, and the clients that share it; each client has one command."""

    def __init__(self, command: list[str]) -> None:
        self._step = subprocess.Popen(  # noqa: S603  srun and words of our own
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=without_wishes(os.environ),
        )
        self._clients: dict[int, Client] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._words = b""
        # Whoever started it is on the way.
        self.used = time.monotonic() + FIRST_SECONDS
        self._readers = [
            threading.Thread(target=body, daemon=True) for body in (self._down, self._listen)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def busy(self) -> bool:
        """Tell whether a client is connected."""
        return bool(self._clients)

    @property
    def ended(self) -> bool:
        """Tell whether the step has ended and all that it sent was handed on."""
        return self._step.poll() is not None and not self._readers[0].is_alive()

    def add(self, client: socket.socket) -> None:
        """Serve a client until it leaves."""
        number = next(self._numbers)
        with contextlib.suppress(OSError):
            client.sendall(pack(0, HELLO))
            self._clients[number] = Client(client)
            threading.Thread(target=self._up, args=(client, number), daemon=True).start()

    def end(self) -> None:
        """End the step, and say to those who still wait why."""
        with contextlib.suppress(OSError):
            self._step.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._step.wait(LOOK_SECONDS)
        if self._step.poll() is None:
            self._step.terminate()
        self.tell()

    def tell(self) -> None:
        """Say to those who still wait how the step ended."""
        self._readers[1].join(LOOK_SECONDS)
        told = {"status": self._step.poll(), "words": self._words.decode(errors="replace")}
        for client in list(self._clients.values()):
            client.finish(pack(0, GONE, json.dumps(told).encode()), LOOK_SECONDS)

    def _up(self, client: socket.socket, number: int) -> None:
        """Hand on what a client sends, under a number of its own."""
        with client, client.makefile("rb") as stream:
            with contextlib.suppress(OSError):
                for _, kind, payload in frames(stream.read):
                    self._send(pack(number, kind, payload))
            self._clients.pop(number).give(None)
            self._send(pack(number, CLOSE))
            self.used = time.monotonic()

    def _send(self, frame: bytes) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._step.stdin.write(frame)  # type: ignore[union-attr]
            self._step.stdin.flush()  # type: ignore[union-attr]

    def _down(self) -> None:
        """Hand on what the node sends to whom it is for."""
        stream: Any = self._step.stdout
        for line in stream:
            if line.endswith(BEGIN):
                break
        for number, kind, payload in frames(stream.read):
            # It may have left, and its number with it.
            if client := self._clients.get(number):
                client.give(pack(0, kind, payload))

    def _listen(self) -> None:
        for line in self._step.stderr:  # type: ignore[union-attr]
            self._words = (self._words + line)[-WORDS_BYTES:]


def main(job: str, node: str, python: str, seconds: int) -> None:
    """Serve until the step ends or nobody asks any more."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(address(job, node))
    except OSError:
        return  # another process was faster, and serves
    server.listen(64)
    server.settimeout(LOOK_SECONDS)
    step = Multiplexer(relay_command(job, node, python))
    while not step.ended and (step.busy or time.monotonic() - step.used < seconds):
        _accept(server, step)
    leave = time.monotonic() + GRACE_SECONDS
    while step.ended and time.monotonic() < leave:
        _accept(server, step)
        step.tell()
    server.close()
    step.end()


def _accept(server: socket.socket, step: Multiplexer) -> None:
    """Serve whoever comes within a moment."""
    with contextlib.suppress(TimeoutError):
        client, _ = server.accept()
        # A socket takes over the time limit of none; this one waits for as long as it takes.
        client.settimeout(None)
        if is_ours(client):
            step.add(client)
        else:
            client.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
