"""What HAProxy says of an engine's ranks, and how one is drained; standard library only."""

from __future__ import annotations

import csv
import errno
import os
import socket
import time
from typing import Any

from .. import forked, safely
from ..failure import Failure

BACKEND = "ranks"
READY, DRAIN = "ready", "drain"
# Listens, or told by the watch that it computes; a star is before it while the next check runs.
PASSED, RUNNING = "L7OK", "* "
MOST_BYTES = 4 << 20


def ask(
    path: str, command: str, timeout: float = 10, who: str = "the router", stage: str = "serve"
) -> str:
    """Return what HAProxy answers on its socket; raise Failure where nobody listens there.

    The socket lies where a service could put another one, or a link to one of root's: it is asked
    as the user who could, and an answer has a time and a size. who: what this HAProxy is, and
    stage: what starts it.
    """

    def work(tell: forked.Tell) -> None:
        try:
            tell("answer", _answer(path, command, timeout))
        except OSError as error:
            tell("refused", [error.strerror or "", str(error)])

    told = safely.as_holder(os.path.dirname(os.path.abspath(path)), work)
    if "answer" in told:
        return str(told["answer"])
    missing = os.strerror(errno.ENOENT)
    brief, found = told.get("refused") or ["", told.get("error") or missing]
    raise Failure(
        f"{who} does not answer on {path}: {brief or found}",
        expected=f"HAProxy, started by the stage {stage}",
        found=brief or found,
        where=path,
        fix=f"run the stage {stage} (--tags {stage})",
    )


def _answer(path: str, command: str, timeout: float) -> str:
    """Return the answer to a command, which is given again where HAProxy has not read it.

    Linux resets a connection of one host where the other side closed it with something unread, or
    never accepted it (`unix_release_sock` in net/unix/af_unix.c): a process of HAProxy that another
    one replaces just then. Who has read the command and is silent ends it without a reset.
    """
    end = time.monotonic() + timeout
    while True:
        answer = bytearray()
        try:
            with socket.socket(socket.AF_UNIX) as asked:
                asked.settimeout(timeout)
                asked.connect(path)
                asked.sendall(f"{command}\n".encode())
                while piece := asked.recv(65536):
                    answer += piece
                    left = end - time.monotonic()
                    if left <= 0 or len(answer) > MOST_BYTES:
                        raise OSError(f"no end of its answer after {len(answer)} bytes")
                    asked.settimeout(left)
            return answer.decode(errors="replace")
        except (ConnectionResetError, BrokenPipeError):
            if answer or time.monotonic() > end:
                raise
            time.sleep(0.05)


def ranks(path: str) -> list[dict[str, Any]]:
    """Return of each rank its name, whether it is up and proven so, its requests, and words.

    passed is whether both checks hold, of one that drains as well. One that was never asked is up
    in HAProxy's eyes, but not proven.
    """
    lines = ask(path, "show stat").lstrip("# ").splitlines()
    rows = [row for row in csv.DictReader(lines) if row["pxname"] == BACKEND]
    return [_rank(row) for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]


def _rank(row: dict[str, str]) -> dict[str, Any]:
    # "UP 1/2" while it goes down.
    state = row["status"].split()[0]
    checks = [row[name].removeprefix(RUNNING) for name in ("check_status", "agent_status")]
    passed = checks == [PASSED, PASSED]
    said = [row["last_chk"], row["last_agt"]]
    told = ", ".join(word for word in said if word)
    return {
        "name": row["svname"],
        "up": state == "UP",
        "draining": state == "DRAIN",
        "passed": passed,
        "proven": state == "UP" and passed,
        "requests": int(row["scur"] or 0),
        "words": f"{state}{f' ({told})' if told else ''}",
    }


def refusal(answer: str) -> str:
    """Return what HAProxy says against a command; empty when it has done it without a word."""
    return " ".join(answer.split())
