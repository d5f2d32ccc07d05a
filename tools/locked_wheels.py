"""Write which wheel of each locked distribution a host of each Python and architecture installs.

Asks the package index; tests read what it wrote, and need none. Run it after locking again:

    .venv/bin/python tools/locked_wheels.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from vllm_ansible.bundle.wheels import LIBC_MINOR, Locked, Target, best

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
# For aarch64 the last torch of CUDA 12 on the package index is a build for processors.
ARCHITECTURES = {"engine-cuda": ("aarch64", "x86_64"), "engine-cuda12": ("x86_64",)}
PYTHONS = ("3.11", "3.12", "3.13")


def packages(lock: Path, target: Target) -> list[dict[str, Any]]:
    """Return what resolves for a target with the versions of a lock, wheels alone."""
    with tempfile.TemporaryDirectory() as directory:
        resolved = Path(directory) / "pylock.toml"
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet"]
        command += ["--format", "pylock.toml", "--output-file", str(resolved)]
        command += ["--only-binary", ":all:", "--constraint", str(lock)]
        command += ["--python-version", target.python]
        command += ["--python-platform", f"{target.architecture}-manylinux_2_{LIBC_MINOR}"]
        subprocess.run([*command, str(lock.with_suffix(".in"))], check=True)  # noqa: S603
        found: list[dict[str, Any]] = tomllib.loads(resolved.read_text())["packages"]
        return found


def lines(lock: Path, architecture: str) -> list[str]:
    """Return architecture, Pythons, file and SHA-256 of each wheel."""
    found: dict[tuple[str, str], list[str]] = {}
    for python in PYTHONS:
        target = Target(python, architecture)
        for package in packages(lock, target):
            files = {
                unquote(urlsplit(wheel["url"]).path).rpartition("/")[2]: wheel["hashes"]["sha256"]
                for wheel in package["wheels"]
            }
            one = Locked(package["name"], package["version"], frozenset())
            file = best(one, files, target)
            found.setdefault((file, files[file]), []).append(python)
    return sorted(
        f"{architecture} {','.join(pythons)} {file} {digest}\n"
        for (file, digest), pythons in found.items()
    )


if __name__ == "__main__":
    for name, architectures in ARCHITECTURES.items():
        lock = REQUIREMENTS / f"{name}.txt"
        written = [line for one in architectures for line in lines(lock, one)]
        lock.with_suffix(".wheels").write_text("".join(written))
