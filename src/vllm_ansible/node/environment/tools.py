"""The small environment of the cluster's own tools: how it is made, and whether it is complete."""

from __future__ import annotations

import hashlib
import os
from typing import Optional

from ..build_command import last_lines

__all__ = ["QUIET", "advice", "commands", "complete", "last_lines", "mark", "write_lock"]

MARK = ".complete"
QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "UV_NO_PROGRESS": "1",
    "VIRTUAL_ENV": "",
    "PYTHONPATH": "",
}


def complete(place: str, requirements: str) -> bool:
    """Tell whether the environment was made from this lock and can still start its programs."""
    try:
        with open(os.path.join(place, MARK), encoding="utf-8") as mark_file:
            if mark_file.read() != _digest(requirements):
                return False
    except OSError:
        return False
    # A distribution upgrade can take the interpreter away from under it.
    return all(os.access(os.path.join(place, "bin", name), os.X_OK) for name in ("python", "uv"))


def write_lock(place: str, requirements: str) -> str:
    """Write the lock beside the environment and return its path."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    path = f"{place}.txt"
    with open(path, "w", encoding="utf-8") as lock:
        lock.write(requirements)
    return path


def commands(uv: Optional[str], python: str, place: str, lock: str) -> list[list[str]]:
    """Return the commands that make the environment; each may be repeated over a half-made one."""
    inside = f"{place}/bin/python"
    if uv:
        return [
            [uv, "venv", "--quiet", "--allow-existing", "--python", python, place],
            [uv, "pip", "install", "--quiet", "--python", inside, "--require-hashes", "-r", lock],
        ]
    pip = [inside, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:"]
    return [[python, "-m", "venv", place], [*pip, "-r", lock]]


def mark(place: str, requirements: str) -> None:
    """Leave the mark that everything is there."""
    with open(os.path.join(place, MARK), "w", encoding="utf-8") as mark_file:
        mark_file.write(_digest(requirements))


def advice(output: str) -> str:
    """Say what to do about what venv or pip complained of."""
    if "ensurepip is not" in output or "No module named venv" in output:
        return "install python3-venv (Debian, Ubuntu) on this host"
    if "do not match the hashes" in output.lower():
        return "the package index serves another file than was locked: check the mirror"
    return "make the package index reachable from this host (sources_environment: proxy or mirror)"


def _digest(requirements: str) -> str:
    return hashlib.sha256(requirements.encode()).hexdigest()
