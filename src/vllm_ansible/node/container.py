"""Tell a container from a machine, virtual ones included."""

from __future__ import annotations

import os
from pathlib import Path

# What container runtimes leave in the root of what they start; systemd writes the first one.
MARKS = (
    *("run/systemd/container", "run/.containerenv", ".dockerenv"),
    "run/secrets/kubernetes.io",
)
# The kernel's own first namespaces (include/linux/proc_ns.h). A container has one of its own.
FIRST = {"ipc": 0xEFFFFFFF, "uts": 0xEFFFFFFE, "pid": 0xEFFFFFFC, "cgroup": 0xEFFFFFFB}


def in_container(root: Path = Path("/")) -> bool:
    """Tell whether this is a container, which shares its machine's clock, kernel and limits.

    A virtual machine that was started from a container's image has the marks and no runtime.
    """
    return any((root / mark).exists() for mark in MARKS) and not _is_first(root)


def _is_first(root: Path) -> bool:
    try:
        return all(
            os.readlink(root / "proc/self/ns" / name) == f"{name}:[{number}]"
            for name, number in FIRST.items()
        )
    except OSError:
        return False
