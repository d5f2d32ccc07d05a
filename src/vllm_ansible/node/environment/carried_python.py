"""The interpreter of a packed environment: that of the system, or one of uv's that goes with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..build_command import BuildError, output_of

# In the environment: a directory of interpreters as it lies in the cluster's own.
CARRIED = ".python"
ASK = "import platform; print(platform.python_version())"


def carry(place: Path, cluster_dir: str) -> str:
    """Put an interpreter of the cluster's own into the environment, and return the path of others.

    Hosts have the system's by themselves, and one that uv has fetched only where it did.
    """
    ours = Path(cluster_dir) / "python"
    link = place / "bin" / "python"
    names = _names(os.readlink(link), ours) if link.is_symlink() else []
    if not names:
        found = os.path.realpath(link)
        return "" if found.startswith(f"{os.path.realpath(place)}/") else found
    carried = place / CARRIED
    carried.mkdir(exist_ok=True)
    for name in names:
        _put(ours / name, carried / name)
    return ""


def expect(interpreter: str, version: str, environment: Mapping[str, str]) -> None:
    """Raise BuildError unless the interpreter is here, too, and of this version."""
    if not interpreter:
        return
    found = "no such file"
    if os.path.exists(interpreter):
        found = output_of([interpreter, "-c", ASK], environment).strip()
    if found != version:
        raise BuildError(
            "the packed environment was made with a Python that this host has not",
            expected=f"{interpreter}, Python {version}",
            found=found,
            where=interpreter,
            fix="give all hosts the same system Python, or build on each (environment_shared_dir)",
        )


def bring(place: Path, cluster_dir: str) -> None:
    """Put an interpreter that the environment has brought along where it expects it."""
    carried = place / CARRIED
    for one in sorted(carried.iterdir()) if carried.is_dir() else ():
        _put(one, Path(cluster_dir) / "python" / one.name)


def _put(source: Path, target: Path) -> None:
    """Copy a directory or a link to one, whole, unless it is there."""
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        # uv writes it with the whole path, which leads to the same place on every host.
        target.symlink_to(os.readlink(source))
        return
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, symlinks=True)
    partial.rename(target)


def _names(interpreter: str, ours: Path) -> list[str]:
    """Return the directories in ours that an interpreter needs: uv links a release to its patch."""
    for directory in (str(ours), os.path.realpath(ours)):
        if interpreter.startswith(f"{directory}/"):
            names = [Path(interpreter).relative_to(directory).parts[0]]
            while (ours / names[-1]).is_symlink():
                names.append(Path(os.readlink(ours / names[-1])).name)
            return names
    return []
