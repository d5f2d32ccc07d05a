"""Let the engines of a node finish what they were asked, before the time of its job is over.

It comes to the node in one text with the agent: nothing of ours can be imported there. Signals to
a step reach every process in it, ranks and Ray too, so a mark on the shared file system says that
draining has begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from typing import Any, Callable, Optional

LOOK_SECONDS = 2.0
# What launcher.py writes into the environment of all that it runs: the path of its record.
OF_RECORD = b"VLLM_ANSIBLE_PROCESS="


def there(mark: str) -> bool:
    """Tell whether a mark has been made.

    Its directory is listed, which asks the file server; a client of NFS remembers for up to a
    minute that a name was not there.
    """
    above, name = os.path.split(mark)
    try:
        return name in os.listdir(above)
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], deadline: Optional[float] = None) -> bool:
    """Look every few seconds until a condition holds; tell whether it did before the deadline."""
    while not condition():
        if deadline is not None and time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _record(process: int) -> dict[str, Any]:
    """Return what is recorded of the one whose environment a process has; raise OSError."""
    with open(f"/proc/{process}/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            if entry.startswith(OF_RECORD):
                return _read(os.fsdecode(entry[len(OF_RECORD) :]))
    return {}


def _serves(record: dict[str, Any]) -> bool:
    """Tell whether a record is of a server: an engine's only one, or that of a data rank."""
    first, _, rank = str(record["name"]).partition(f"{record['engine']}-serve")
    named = bool(record["engine"]) and not first and (not rank or rank[1:].isdigit())
    return named and "--headless" not in record["argv"]


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def servers(processes: Iterable[int]) -> dict[int, int]:
    """Return the servers among processes, each with the launcher that waits for its end.

    A headless one only computes for the server of another node, and Ray for one of any.
    """
    found = {}
    for process in processes:
        # Others come and go meanwhile.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = _record(process)
            if _serves(record):
                state = _read(record["state_path"])
                if state["process"]["pid"] == process:
                    found[process] = state["launcher"]["pid"]
    return found


def catches(process: int) -> bool:
    """Tell whether a process has a handler for SIGUSR1; raise OSError."""
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


def drain(mark: str, seconds: float, running: Callable[[], list[int]]) -> str:
    """Return once no node has a server any more, or so many seconds have passed, with what was.

    `running` returns every process that was started here. The server alone is asked: its launcher
    would kill it after `stop_timeout_seconds`, and starts nothing again.
    """
    deadline = time.monotonic() + seconds
    asked = servers(running())
    for process in asked:
        # vllm_guard has the first of them finish what the server was asked; where it is not, or not
        # yet, that signal would kill without a word.
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGUSR1 if catches(process) else signal.SIGTERM)
    own = {*asked, *asked.values()}
    ended = wait_until(lambda: not own.intersection(running()), deadline)
    # The job's script removes the mark as it ends.
    with contextlib.suppress(OSError):
        os.mkdir(os.path.join(mark, os.environ["SLURM_NODEID"]))
    nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
    everywhere = wait_until(lambda: _done(mark) >= nodes, deadline)
    what = (
        f"servers that have finished: {len(asked)}" if ended else "servers did not finish in time"
    )
    return what if everywhere or not ended else f"{what}; those of other nodes did not in time"


def _done(mark: str) -> int:
    """Return how many nodes have no server any more."""
    try:
        return len(os.listdir(mark))
    except OSError:
        return 0
