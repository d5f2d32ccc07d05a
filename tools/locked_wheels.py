"""Write which wheel of each locked distribution a host of each architecture installs.

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

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
LOCK = REQUIREMENTS / "engine-cuda.txt"
TARGET = REQUIREMENTS / "engine-cuda.wheels"
ARCHITECTURES = ("aarch64", "x86_64")
PYTHON = (3, 11)
# That of the C library of RHEL 9, the oldest system that is supported.
LIBC_MINOR = 34


def tags(architecture: str) -> list[Tag]:
    """Return what a host of an architecture can load, best first."""
    libc = [f"manylinux_2_{minor}_{architecture}" for minor in range(LIBC_MINOR, 4, -1)]
    older = [f"manylinux{name}_{architecture}" for name in ("2014", "2010", "1")]
    platforms = [*libc, *older, f"linux_{architecture}"]
    abi = f"cp{PYTHON[0]}{PYTHON[1]}"
    specific = cpython_tags(PYTHON, abis=[abi], platforms=platforms)
    return [*specific, *compatible_tags(PYTHON, interpreter=abi, platforms=platforms)]


def packages(architecture: str) -> list[dict[str, Any]]:
    """Return what resolves for an architecture with the versions of the lock, wheels alone."""
    with tempfile.TemporaryDirectory() as directory:
        resolved = Path(directory) / "pylock.toml"
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet"]
        command += ["--format", "pylock.toml", "--output-file", str(resolved)]
        command += ["--only-binary", ":all:", "--constraint", str(LOCK)]
        command += ["--python-version", ".".join(map(str, PYTHON))]
        command += ["--python-platform", f"{architecture}-manylinux_2_{LIBC_MINOR}"]
        subprocess.run([*command, str(LOCK.with_suffix(".in"))], check=True)  # noqa: S603
        found: list[dict[str, Any]] = tomllib.loads(resolved.read_text())["packages"]
        return found


def lines(architecture: str) -> list[str]:
    """Return architecture, file and SHA-256 of the wheel of each distribution."""
    order = {tag: place for place, tag in enumerate(tags(architecture))}
    found = []
    for package in packages(architecture):
        files = {
            unquote(urlsplit(wheel["url"]).path).rpartition("/")[2]: wheel["hashes"]["sha256"]
            for wheel in package["wheels"]
        }
        ranks = {
            file: min(order[tag] for tag in parse_wheel_filename(file)[3] if tag in order)
            for file in files
            if not order.keys().isdisjoint(parse_wheel_filename(file)[3])
        }
        best = min(ranks, key=lambda file: ranks[file])
        found.append(f"{architecture} {best} {files[best]}\n")
    return sorted(found)


if __name__ == "__main__":
    TARGET.write_text("".join(line for one in ARCHITECTURES for line in lines(one)))
