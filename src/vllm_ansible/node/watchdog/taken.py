"""Take what the processes of an engine are doing, before anybody ends them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time

from .snapshot import Process

KEPT = 3
SPY_SECONDS = 15.0
# Of one engine on one host; the rest is counted.
MOST_PROCESSES = 40


def take(directory: str, label: str, processes: list[Process], py_spy: str) -> str:
    """Write stacks and states of processes into a directory of their own; return its path.

    The oldest directories go. Whatever cannot be read is said in its place.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{label}")
    os.makedirs(path, mode=0o700, exist_ok=True)
    for process in processes[:MOST_PROCESSES]:
        text = [f"{process.title or process.command}\n", _kernel(process.pid)]
        if py_spy and "python" in _program(process.pid):
            text.append(_stack(py_spy, process.pid))
        with open(os.path.join(path, f"{process.pid}.txt"), "w", encoding="utf-8") as stream:
            stream.write("\n".join(text))
    for old in sorted(os.listdir(directory))[:-KEPT]:
        shutil.rmtree(os.path.join(directory, old), ignore_errors=True)
    return path


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""


def _kernel(pid: int) -> str:
    """Return what the kernel says of a process and of where its threads wait."""
    text = [_read(f"/proc/{pid}/status")]
    with contextlib.suppress(OSError):
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            words = _read(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()
            where = _read(f"/proc/{pid}/task/{thread}/wchan")
            text.append(f"thread {thread}: state {words[0] if words else '?'}, in {where or '?'}")
    text.append(f"kernel stack:\n{_read(f'/proc/{pid}/stack')}")
    return "\n".join(text)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip()
    except OSError as error:
        return f"not readable: {error.strerror}"


def _stack(py_spy: str, pid: int) -> str:
    """Return the Python stacks of a process, which is not stopped for it and may be."""
    try:
        done = subprocess.run(  # noqa: S603 - the engine environment's own tool
            [py_spy, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=SPY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stack: {error}"
    return done.stdout if done.returncode == 0 else f"no stack: {done.stderr}"
