"""Run a command on a node of the job, over the step that is shared with everybody else."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_ansible.node.slurm.agent import (
    COUNT,
    END,
    ERRORS,
    EXIT,
    INPUT,
    OPEN,
    OUTPUT,
    TAKEN,
    Window,
    frames,
    is_ours,
    pack,
)
from vllm_ansible.slurm.multiplexer import GONE, HELLO, address

SOURCE = Path(__file__).resolve().parents[2]
# From the start of a process to its listening, on a machine that is busy.
START_SECONDS = 30.0
PAUSE_SECONDS = 0.05
CHUNK_BYTES = 32768
NOT_STARTED = "the process that shares the step does not start"
SERVED = pack(0, HELLO)


class StepEnded(Exception):
    """The step is gone, with what srun said of it."""


@dataclass(frozen=True)
class Node:
    """A node of a running job, and the Python that it has."""

    job: str
    name: str
    python: str = "/usr/bin/python3"
    persist_seconds: int = 120


def run(
    node: Node,
    argv: Sequence[str],
    data: Iterable[bytes] = (),
    output: Callable[[bytes], object] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run a command and return its status, output and errors; raise StepEnded.

    `data` is its input. With `output`, output goes there as it comes and is returned empty.
    """
    kept: dict[int, list[bytes]] = {OUTPUT: [], ERRORS: []}
    sinks: dict[int, Callable[[bytes], object]] = {kind: kept[kind].append for kind in kept}
    if output:
        sinks[OUTPUT] = output
    window, lock = Window(), threading.Lock()
    # A step that ends now says so, or closes the connection before it could.
    with (
        _served(node) as connection,
        contextlib.closing(window),
        contextlib.suppress(ConnectionError),
    ):
        with contextlib.suppress(ConnectionError):
            connection.sendall(pack(0, OPEN, json.dumps({"argv": list(argv)}).encode()))
        # Beside the reading: a command that answers before it has read all would stop both.
        feeding = (connection, data, window, lock)
        threading.Thread(target=_feed, args=feeding, daemon=True).start()
        with connection.makefile("rb") as stream:
            for _, kind, payload in frames(stream.read):
                if kind == EXIT:
                    status = int(json.loads(payload)["status"])
                    return status, b"".join(kept[OUTPUT]), b"".join(kept[ERRORS])
                if kind == GONE:
                    raise StepEnded(_words(json.loads(payload)))
                if kind == TAKEN:
                    window.taken(payload)
                    continue
                sinks[kind](payload)
                with lock:
                    connection.sendall(pack(0, TAKEN, COUNT.pack(len(payload))))
    raise StepEnded("the process that shares the step was ended")


def _served(node: Node) -> socket.socket:
    """Return a connection that somebody serves: one may have ended just as it was asked."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        connection = _connect(node, deadline)
        with contextlib.suppress(OSError):
            if connection.recv(len(SERVED), socket.MSG_WAITALL) == SERVED:
                return connection
        connection.close()
        if time.monotonic() > deadline:
            raise StepEnded(NOT_STARTED)


def _connect(node: Node, deadline: float) -> socket.socket:
    """Return a connection to the node's multiplexer, which is started where there is none."""
    started: subprocess.Popen[bytes] | None = None
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(address(node.job, node.name))
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                raise StepEnded(NOT_STARTED) from error
        else:
            if is_ours(connection):
                return connection
            connection.close()
            raise StepEnded(f"another user listens at @{address(node.job, node.name)[1:]}")
        if started is None or started.poll() is not None:
            started = _start(node)
        time.sleep(PAUSE_SECONDS)


def _start(node: Node) -> subprocess.Popen[bytes]:
    """Start a multiplexer that outlives this process; one that comes second ends by itself."""
    words = [node.job, node.name, node.python, str(node.persist_seconds)]
    return subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-m", "vllm_ansible.slurm.multiplexer", *words],
        cwd=SOURCE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _feed(
    connection: socket.socket, data: Iterable[bytes], window: Window, lock: threading.Lock
) -> None:
    with contextlib.suppress(OSError):
        for chunk in data:
            for start in range(0, len(chunk), CHUNK_BYTES):
                piece = chunk[start : start + CHUNK_BYTES]
                window.use(len(piece))
                with lock:
                    connection.sendall(pack(0, INPUT, piece))
        with lock:
            connection.sendall(pack(0, END))


def _words(told: dict[str, object]) -> str:
    said = str(told["words"]).strip()
    return said or f"srun ended with {told['status']} and said nothing"
