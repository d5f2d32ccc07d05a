"""The small environment of the cluster's own tools: how it is made, and whether it is complete."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Optional

from ..build_command import last_lines
from .uv_command import of_pip

__all__ = [
    "advice",
    "commands",
    "complete",
    "instead",
    "last_lines",
    "mark",
    "settings",
    "write_lock",
]

MARK = ".complete"
UV_LOCK = "uv.txt"
# Settings of pip, and the variables that tell uv the same: the first is set where none of them is.
OF_PIP = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_OFFLINE",),
    "proxy": ("ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"),
}
# Empty means that a variable of the login must not reach the tools.
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


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the commands: what pip alone was told holds for uv, too."""
    environment = {**os.environ, **given}
    of_uv = {
        variable: value
        for name, variables in OF_PIP.items()
        if not environment.keys() & set(variables) and (value := of_pip(name, environment))
        for variable in variables[:1]
    }
    if "UV_FIND_LINKS" in of_uv:
        of_uv["UV_FIND_LINKS"] = ",".join(of_uv["UV_FIND_LINKS"].split())
    # Without its network uv still reads directories of wheels, and leaves the rest to pip at once.
    if of_uv.pop("UV_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        of_uv["UV_OFFLINE"] = "1"
    return {**QUIET, **of_uv, **given}


def write_lock(place: str, requirements: str) -> str:
    """Write the lock beside the environment and return its path; inside lies what it has of uv."""
    os.makedirs(place, exist_ok=True)
    path = f"{place}.txt"
    with open(path, "w", encoding="utf-8") as lock:
        lock.write(requirements)
    with open(os.path.join(place, UV_LOCK), "w", encoding="utf-8") as lock:
        lock.writelines(re.findall(r"^uv==(?:.*\\\n)*.*", requirements, re.MULTILINE))
    return path


def commands(uv: Optional[str], python: str, place: str, lock: str) -> list[list[str]]:
    """Return the commands that make the environment; each may be repeated over a half-made one."""
    install = [
        *("pip", "install", "--quiet", "--python", f"{place}/bin/python"),
        *("--require-hashes", "-r", lock),
    ]
    if uv:
        return [
            [uv, "venv", "--quiet", "--allow-existing", "--python", python, place],
            [uv, *install],
        ]
    return [
        [python, "-m", "venv", place],
        _by_pip(place, os.path.join(place, UV_LOCK)),
        [f"{place}/bin/uv", *install],
    ]


def instead(command: list[str], place: str, lock: str) -> Optional[list[str]]:
    """Return what takes the place of a command that failed, if anything does.

    Pip may have a mirror, or certificates, that uv knows nothing of.
    """
    return _by_pip(place, lock) if command[0] == f"{place}/bin/uv" else None


def _by_pip(place: str, lock: str) -> list[str]:
    return [
        *(f"{place}/bin/python", "-m", "pip", "install", "--quiet"),
        *("--require-hashes", "--only-binary=:all:", "-r", lock),
    ]


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
