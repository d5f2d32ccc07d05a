"""What the engine's environment must hold: a lock, our packages, our builds, a Python."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
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
    requirements: Path,
    packages: Sequence[Path],
    python: str,
    wheels: Sequence[Mapping[str, Any]] = (),
    given: str = "",
) -> dict[str, Any]:
    """Return the packages and the digest by which hosts know this environment.

    wheels are our own builds, by name and key; one is installed in place of what the lock names.
    given is the directory of an environment on hosts that is used in place of the lock.
    """
    lock = f"given:{given}" if given else hashlib.sha256(requirements.read_bytes()).hexdigest()
    contents = [read_package(directory) for directory in packages]
    built = [{"name": wheel["name"], "key": wheel["key"]} for wheel in wheels]
    text = json.dumps([lock, contents, python, *([built] if built else [])], sort_keys=True)
    return {
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "packages": contents,
        "python": python,
        "wheels": built,
    }


def image_request(
    name: str, sha256: str, added: Sequence[str], packages: Sequence[Path]
) -> dict[str, Any]:
    """Return our own packages and the digest by which hosts know this image.

    name: in a registry. sha256: of a tar, in place of a name. added: what is layered in.
    """
    contents = [read_package(directory) for directory in packages]
    text = json.dumps(["image", name, sha256, sorted(added), contents], sort_keys=True)
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "packages": contents}
