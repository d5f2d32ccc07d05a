"""Tell the processes of our clusters from those of strangers, by what marks them."""

from __future__ import annotations

import contextlib
import os
import pwd

from .. import launcher


def processes_of(cluster_dir: str) -> set[int]:
    """Return every living process that was started for a record of this cluster, and below.

    Without root the environment of other users' processes cannot be read: those whose parents
    cannot be seen to be ours count as strangers.
    """
    mark = f"{launcher.MARKER}={os.path.join(cluster_dir, 'processes')}/".encode()
    table = launcher.process_table()
    found = set()
    for pid in table:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as handle:
            if any(one.startswith(mark) for one in handle.read().split(b"\0")):
                found.add(pid)
    return found | launcher.descendants(found, table)


def describe(pid: int) -> dict[str, object]:
    """Return pid, user and command of a process; empty where it is not visible from here."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as handle:
            command = handle.read().strip()
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return {"pid": pid, "user": "", "command": ""}
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"pid": pid, "user": user, "command": command}
