"""Ask the door's HAProxy what it runs with, and give it other clients or settings.

Clients are replaced in the running worker, all at once. Anything else is a reload: the master
starts a new worker on the same listening sockets, and the old one ends the requests it has.
Standard library only.
"""

from __future__ import annotations

import errno
import os
import time

from ..failure import Failure
from .router import ask

# Of a command with a payload: HAProxy takes as much as a buffer of its own holds.
LINES_AT_ONCE = 50
DESCRIPTION = "description:"


def digest(admin: str) -> str:
    """Return the digest of the settings that the worker runs with; empty where none answers."""
    try:
        lines = _ask(admin, "show info").splitlines()
    except Failure:
        return ""
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(DESCRIPTION)]
    return found[0] if found else ""


def wait(admin: str, wanted: str, seconds: float) -> str:
    """Wait until the worker runs with these settings; return with which it runs in the end."""
    end = time.monotonic() + seconds
    while True:
        found = digest(admin)
        if found == wanted or time.monotonic() > end:
            return found
        time.sleep(0.1)


def reload(master: str, seconds: float = 30) -> None:
    """Start a new worker with the files as they are; the old one ends what it has.

    The master listens a moment later than its first worker, and closes what asked it to reload.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            _ask(master, "reload")
        except Failure as failure:
            if failure.details["found"] == os.strerror(errno.ECONNRESET):
                return
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def clients(admin: str, path: str) -> dict[str, str]:
    """Return the map as the worker has it: the word of each client by digest of its key."""
    rows = [line.split() for line in _ask(admin, f"show map {path}").splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3}


def entries(text: str) -> dict[str, str]:
    """Return a map as a file holds it."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def replace(admin: str, path: str, wanted: dict[str, str]) -> None:
    """Put other clients in the place of all that the worker has, in one step."""
    said = _ask(admin, f"prepare map {path}").strip()
    version = said.rpartition(" ")[2]
    if not version.isdigit():
        raise _refused(said, path)
    rows = [f"{key} {value}" for key, value in wanted.items()]
    for start in range(0, len(rows), LINES_AT_ONCE):
        part = "\n".join(rows[start : start + LINES_AT_ONCE])
        _done(_ask(admin, f"add map @{version} {path} <<\n{part}\n"), path)
    _done(_ask(admin, f"commit map @{version} {path}"), path)


def _ask(path: str, command: str) -> str:
    return ask(path, command, who="the door", stage="route")


def _done(said: str, path: str) -> None:
    if said.strip():
        raise _refused(said.strip(), path)


def _refused(said: str, path: str) -> Failure:
    return Failure(f"HAProxy does not accept the clients: {said}", where=path)
