"""Ask the door's HAProxy what it runs with, and give it other clients or settings.

Clients are replaced in the running worker, all at once. Anything else is a reload: the master
starts a new worker on the same listening sockets, and the old one ends the requests it has.
Standard library only.
"""

from __future__ import annotations

import csv
import http.client
import re
import time
from typing import Any, Optional

from ..failure import Failure
from .router import DRAIN, ask, refusal

# Of a command with a payload: HAProxy takes as much as a buffer of its own holds.
LINES_AT_ONCE = 50
DESCRIPTION = "description:"
# Of an engine: what it computes and what waits there, whoever has sent it.
REQUESTS = re.compile(
    r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.eE+]+)", re.MULTILINE
)


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

    The master listens a moment later than its first worker.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            _ask(master, "reload")
        except Failure:
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


def servers(admin: str, names: list[str]) -> list[dict[str, Any]]:
    """Return of each server of these names its place, whether it is up, and its requests.

    An earlier worker may still have requests of it, which this one does not count; so the engine
    is asked as well, and the larger number counts.
    """
    lines = _ask(admin, "show stat").lstrip("# ").splitlines()
    rows = [row for row in csv.DictReader(lines) if row["svname"] in names]
    return [_server(row) for row in rows]


def _server(row: dict[str, str]) -> dict[str, Any]:
    # "UP 1/2" while it goes down.
    state = row["status"].split()[0]
    here = int(row["scur"] or 0) + int(row["qcur"] or 0)
    check = row["last_chk"]
    return {
        "name": row["svname"],
        "backend": row["pxname"],
        "up": state == "UP",
        "draining": state == "DRAIN",
        "requests": max(here, engine_requests(row.get("addr") or "") or 0),
        "words": f"{state}{f' ({check})' if check else ''}",
    }


def all_requests(found: list[dict[str, Any]], engines: list[str]) -> int:
    """Return the requests of an engine, of its servers at the door or as they say themselves."""
    own = sum(engine_requests(address) or 0 for address in engines)
    return max(sum(int(one["requests"]) for one in found), own)


def engine_requests(address: str, seconds: float = 5) -> Optional[int]:
    """Return how many requests an engine has itself; None where it does not say."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return None
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=seconds)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    found = REQUESTS.findall(text) if answer.status == 200 else []
    return int(sum(map(float, found))) if found else None


def set_state(admin: str, server: dict[str, Any], state: str) -> None:
    """Give a server no more requests, or let it have them again; its checks continue."""
    place = f"{server['backend']}/{server['name']}"
    said = refusal(_ask(admin, f"set server {place} state {state}"))
    if said:
        raise Failure(f"the door refuses: {said}", where=admin)


def is_in(server: dict[str, Any], state: str) -> bool:
    """Tell whether a server is in a state already, as far as HAProxy shows it."""
    return bool(server["draining"] if state == DRAIN else server["up"])


def _ask(path: str, command: str) -> str:
    return ask(path, command, who="the door", stage="route")


def _done(said: str, path: str) -> None:
    if said.strip():
        raise _refused(said.strip(), path)


def _refused(said: str, path: str) -> Failure:
    return Failure(f"HAProxy does not accept the clients: {said}", where=path)
