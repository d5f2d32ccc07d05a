"""End one process of an engine on this machine, found by the mark that all of them carry."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from vllm_ansible.node import launcher


class FaultError(Exception):
    """There is no such process to end."""


def kill(engine: str, command: str) -> str:
    """End the first process of this engine whose command holds these words; return its command."""
    table = launcher.process_table()
    of_engine = launcher.descendants({pid for pid in table if _is_of(pid, engine)}, table)
    of_engine |= {pid for pid in table if _is_of(pid, engine)}
    shown = {pid: _command(pid) for pid in sorted(of_engine)}
    for pid, words in shown.items():
        if command in words:
            os.kill(pid, signal.SIGKILL)
            return words
    raise FaultError(f"no process of {engine} has {command!r} in its command: {shown}")


def _is_of(pid: int, engine: str) -> bool:
    """Tell whether a process was started from a record of this engine."""
    mark = f"{launcher.MARKER}=".encode()
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    records = [one.removeprefix(mark) for one in environment if one.startswith(mark)]
    return any(Path(record.decode()).name.startswith(f"{engine}-") for record in records)


def _command(pid: int) -> str:
    """Return the command, or the name of a process that has set a title of its own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return words or Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
