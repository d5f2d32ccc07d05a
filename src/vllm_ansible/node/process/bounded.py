"""Run a program of somebody else for a time, keep the end of what it says, and end all of it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Optional

# Of each stream: what matters of a program is what it says last.
MOST_BYTES = 1 << 20
LOOK_SECONDS = 0.1
END_SECONDS = 10.0
# A pipe holds a mebibyte at most: who writes after the program has ended is not read for ever.
LAST_PIECES = 64
# The user is changed by a program of our own: a service that stops all that is its user's would
# otherwise stop the child before it runs the program, and subprocess waits for that without end.
DROP = """
import json, os, sys
uid, gids = json.loads(sys.argv[1])
os.setgroups(gids[1:])
os.setgid(gids[0])
os.setuid(uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


class User(NamedTuple):
    """Who runs a program, by numbers; the first group is its own."""

    uid: int
    gids: Sequence[int]


class Ended(NamedTuple):
    """How a program ended, and the ends of what it said; no status where its time was over."""

    status: Optional[int]
    output: str
    errors: str


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    given: str = "",
    user: Optional[User] = None,
) -> Ended:
    """Run a program in a session of its own, and end what it leaves there; raise OSError.

    Nothing that it starts, prints or leaves unread keeps the caller longer than the seconds.
    """
    if user is not None:
        command = [sys.executable, "-I", "-c", DROP, json.dumps(user), *command]
    process = subprocess.Popen(  # noqa: S603  argv built by our callers, no shell
        list(command),
        env=dict(environment),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    said: list[bytearray] = [bytearray(), bytearray()]
    late = True
    try:
        late = not _talk(process, given.encode(), said, time.monotonic() + seconds)
    finally:
        # It is not reaped before: its number stands for its session as long as that.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                with suppress(OSError):
                    stream.close()
    output, errors = (bytes(one).decode(errors="replace") for one in said)
    return Ended(None if late else process.returncode, output, errors)


def _talk(process: Any, given: bytes, said: list[bytearray], limit: float) -> bool:
    """Write what is given and keep what is said; tell whether the program ended in time."""
    with selectors.DefaultSelector() as selector:
        for number, stream in enumerate((process.stdout, process.stderr)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, said[number])
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        pieces = LAST_PIECES
        while (left := limit - time.monotonic()) > 0 and pieces:
            # Looked at before its last words are read, so that none is missed.
            ended = _has_ended(process.pid)
            pieces -= ended
            readable = False
            for key, _ in selector.select(0 if ended else min(LOOK_SECONDS, left)):
                if key.data is None:
                    given = _write(key.fd, given)
                    if not given:
                        selector.unregister(key.fileobj)
                        process.stdin.close()
                else:
                    piece = os.read(key.fd, 1 << 16)
                    readable = readable or bool(piece)
                    key.data.extend(piece)
                    del key.data[:-MOST_BYTES]
                    if not piece:
                        selector.unregister(key.fileobj)
            if ended and not readable:
                return True
            if not selector.get_map() and not ended:
                time.sleep(min(LOOK_SECONDS, left))
    return not pieces


def _write(descriptor: int, given: bytes) -> bytes:
    """Write what there is room for; return what is left, nothing where nobody reads."""
    try:
        return given[os.write(descriptor, given[: 1 << 16]) :] if given else b""
    except BlockingIOError:
        return given
    except BrokenPipeError:
        return b""


def _has_ended(pid: int) -> bool:
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, options) is not None
