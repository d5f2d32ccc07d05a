"""How many requests each rank has from clients, as HAProxy counts them."""

from __future__ import annotations

import csv
import socket
from typing import NamedTuple


class Sessions(NamedTuple):
    """Requests that a rank has at this moment, and all that it ever got."""

    now: int
    ever: int


def sessions(path: str, timeout: float = 1.0) -> dict[str, Sessions] | None:
    """Return the numbers by rank, or None where HAProxy gives no whole answer."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(timeout)
            asked.connect(path)
            # Servers (4) of all proxies.
            asked.sendall(b"show stat -1 4 -1\n")
            pieces = []
            while piece := asked.recv(65536):
                pieces.append(piece)
    except OSError:
        return None
    # HAProxy cuts what a rank has said in the middle of a character.
    lines = b"".join(pieces).decode(errors="replace").lstrip("# ").splitlines()
    try:
        return {
            row["svname"]: Sessions(int(row["scur"] or 0), int(row["stot"] or 0))
            for row in csv.DictReader(lines)
            if row["pxname"] == "ranks"
        }
    except (KeyError, TypeError, ValueError, csv.Error):
        return None
