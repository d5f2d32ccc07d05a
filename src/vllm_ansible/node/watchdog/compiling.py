"""Compilers below recorded processes: the work of an engine of which no log speaks."""

from __future__ import annotations

import re
from collections.abc import Collection

from .. import launcher
from .snapshot import Process, Snapshots, read

COMPILERS = re.compile(
    r"ptxas|cicc|nvcc|nvlink|fatbinary|cudafe\+\+|cc1(?:plus)?|gcc.*|g\+\+.*|c\+\+|clang.*|ld(?:\..*)?"
    r"|ninja|collect2|hipcc|as"
)


def compiles(command: str) -> bool:
    """Tell whether a command, as the kernel names it, is a compiler's."""
    return COMPILERS.fullmatch(command) is not None


def compilers(cluster_dir: str, names: Collection[str]) -> list[Process]:
    """Return the compilers that recorded processes of these names have started, however deep.

    Names come first: to look into every process of a large host would cost more than it tells.
    """
    snapshots = Snapshots(cluster_dir)
    found = []
    for pid in sorted(launcher.process_table()):
        if compiles(_command(pid)) and snapshots.mark(pid) in names:
            one = read(pid)
            found += [one] if one is not None else []
    return found


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as handle:
            return handle.read().rstrip("\n")
    except OSError:
        return ""
