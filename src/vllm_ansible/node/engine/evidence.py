"""Collect what one host knows of an engine that did not come up: log tails and stacks."""

from __future__ import annotations

import glob
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from .. import forked, launcher, safely
from ..log_file import end_of

# Ray writes why a raylet or its head died beside, not into, what `ray start` prints.
RAY_LOGS = ("raylet.err", "gcs_server.err", "raylet.out", "monitor.err")
# Of all processes of an engine together, which are one for each accelerator when it is sound.
STACKS_SECONDS = 240.0


def tail_of(path: str, start: int, most: int) -> str:
    """Return the end of a log from a byte on; empty when it cannot be read."""
    return end_of(path, start, most)[0].decode(errors="replace")


def tails(
    records: Mapping[str, Mapping[str, Any]], engine: str, ray_dir: str, most: int
) -> dict[str, str]:
    """Return the log of this start of each of an engine's processes, and Ray's own logs."""
    found = {
        name: tail_of(record["log"], record["log_offset"], most)
        for name, record in records.items()
        if record["engine"] == engine
    }
    for name, text in ray_tails(ray_dir, most).items() if ray_dir else ():
        found[f"{engine}-ray-{name}"] = text
    return found


def ray_tails(ray_dir: str, most: int) -> dict[str, str]:
    """Return the ends of Ray's own logs that hold something, read as the user who has written them.

    Ray's directory is the engine's: root would read whatever a link there leads to.
    """

    def read(tell: forked.Tell) -> None:
        for name in RAY_LOGS:
            for path in glob.glob(os.path.join(glob.escape(ray_dir), "session_latest/logs", name)):
                text = tail_of(path, 0, most)
                if text.strip():
                    tell(name, text)

    told = safely.as_holder(ray_dir, read)
    found = {name: text for name, text in told.items() if name in RAY_LOGS}
    if "error" in told:
        found["logs"] = f"Ray's logs cannot be read: {told['error']}"
    return found


def python_processes(root: int) -> list[int]:
    """Return a process and its descendants, those that run Python."""
    table = launcher.process_table()
    found = []
    for pid in sorted({root} | launcher.descendants({root}, table)):
        try:
            interpreter = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            continue
        if interpreter.startswith("python"):
            found.append(pid)
    return found


def stack(py_spy: str, pid: int) -> str:
    """Return the Python stacks of a process, or why they cannot be had."""
    try:
        done = subprocess.run(  # noqa: S603 - the engine environment's own tool
            [py_spy, "dump", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stack of process {pid}: {error}"
    return done.stdout if done.returncode == 0 else f"no stack of process {pid}: {done.stderr}"


def stacks(records: Mapping[str, Mapping[str, Any]], engine: str, py_spy: str) -> dict[str, str]:
    """Return the stacks of the Python processes below an engine's running processes.

    An engine may have any number of them, and let each hold py-spy for its time: not all are seen.
    """
    wanted = [
        (name, pid)
        for name, record in records.items()
        if record["engine"] == engine and record["running"] and record["pid"]
        for pid in python_processes(record["pid"])
    ]
    end, found = time.monotonic() + STACKS_SECONDS, {}
    for name, pid in wanted:
        if time.monotonic() > end:
            why = f"no stack of process {pid}: {STACKS_SECONDS:g} seconds were over before"
            found[f"{name}-stack-{pid}"] = why
            break
        found[f"{name}-stack-{pid}"] = stack(py_spy, pid)
    return found
