"""What the engine's environment must hold: a lock, our packages, a Python."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_package(directory: Path) -> dict[str, Any]:
    """Return a pure Python package of this repository as a host needs it to pack the wheel."""
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    source = directory / "src"
    return {
        "name": project["name"],
        "version": project["version"],
        "summary": project.get("description", ""),
        "entry_points": project.get("entry-points", {}),
        "files": {
            str(path.relative_to(source)): path.read_text() for path in sorted(source.rglob("*.py"))
        },
    }


def environment_request(
    requirements: Path, packages: Sequence[Path], python: str
) -> dict[str, Any]:
    """Return the packages and the digest by which hosts know this environment."""
    lock = hashlib.sha256(requirements.read_bytes()).hexdigest()
    contents = [read_package(directory) for directory in packages]
    text = json.dumps([lock, contents, python], sort_keys=True)
    return {
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "packages": contents,
        "python": python,
    }
