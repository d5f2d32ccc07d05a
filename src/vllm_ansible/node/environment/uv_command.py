"""How uv is called: with which Python, which directories of wheels, which environment."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def find_links(wanted: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the directories of wheels to offer uv, which reads none of pip's settings itself."""
    if wanted:
        return list(wanted)
    if environment.get("UV_FIND_LINKS"):
        return environment["UV_FIND_LINKS"].split(",")
    return of_pip("find-links", environment).split()


def of_pip(name: str, environment: Mapping[str, str]) -> str:
    """Return a setting of pip, empty if it has none."""
    if told := environment.get(f"PIP_{name.replace('-', '_').upper()}"):
        return told
    home = Path(environment.get("HOME", "/"))
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    settings.read(["/etc/pip.conf", home / ".pip/pip.conf", home / ".config/pip/pip.conf"])
    return settings.get("global", name, fallback="")


def interpreter(wanted: str) -> str:
    """Prefer a Python that every user of the host can reach; a bare version is else left to uv."""
    if re.fullmatch(r"3\.\d+", wanted):
        for place in ("/usr/bin", "/usr/local/bin"):
            candidate = f"{place}/python{wanted}"
            if os.access(candidate, os.X_OK):
                return candidate
    return wanted


def sync_command(
    uv: str, place: Path, requirements: Sequence[str], links: Sequence[str], torch_backend: str
) -> list[str]:
    """Return the command that makes the environment equal to its lock."""
    command = [uv, "pip", "sync", "--python", f"{place}/bin/python", "--require-hashes"]
    for link in links:
        command += ["--find-links", link]
    # A directory that was named holds torch already; PyTorch's index need not be reachable then.
    if torch_backend and not links:
        command += ["--torch-backend", torch_backend]
    return [*command, *requirements]


def build_environment(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables uv runs with: the site's, and what keeps it quiet and self-contained."""
    environment = {**os.environ, **wanted["environment"]}
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    # A Python that uv fetches must be readable by the service user, which root's home is not.
    base = Path(wanted["directory"]).parents[1]
    environment.setdefault("UV_PYTHON_INSTALL_DIR", str(base / "python"))
    environment["UV_NO_PROGRESS"] = "1"
    return environment
