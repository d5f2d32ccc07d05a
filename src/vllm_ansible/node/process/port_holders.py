"""Find out who listens on TCP ports of this host."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import Any

LISTEN = "0A"


def listeners(tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> dict[int, str]:
    """Return the socket inode that listens on each port, IPv4 and IPv6."""
    found: dict[int, str] = {}
    for table in tables:
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def owners(inodes: set[str]) -> dict[str, int]:
    """Return the process that holds each socket, those that this user may look into."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{name}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{name}/fd/{descriptor}")
                    inode = target[8:-1] if target.startswith("socket:[") else ""
                    if inode in inodes:
                        found[inode] = int(name)
    return found


def describe(pid: int) -> str:
    """Return a process as people know it: command, number, user."""
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"process {pid}"
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return f"{command} (process {pid} of {user})"


def holders(ports: list[int]) -> list[dict[str, Any]]:
    """Return port, pid and who for each of the ports that somebody listens on."""
    taken = {port: inode for port, inode in listeners().items() if port in set(ports)}
    pids = owners(set(taken.values())) if taken else {}
    return [
        {
            "port": port,
            "pid": pids.get(inode),
            "who": describe(pids[inode]) if inode in pids else "a process of another user",
        }
        for port, inode in sorted(taken.items())
    ]
