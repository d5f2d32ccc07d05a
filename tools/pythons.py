"""Say which further Pythons this machine has of those that supported systems bring.

    .venv/bin/python tools/pythons.py

Release and program of each on standard output, and one line of all on standard error. Exits with 1
where there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

# Debian 12, Ubuntu 24.04, Debian 13.
RELEASES = ("3.11", "3.12", "3.13")
# A controller's environment is made by these two, which Debian packs apart from Python.
ASK = "import ensurepip, sys, venv; print('%d.%d.%d' % sys.version_info[:3], sys.executable)"
ANSWER_SECONDS = 60


@dataclass(frozen=True)
class Found:
    """A release of Python: its version and program, or why there is none."""

    release: str
    version: str = ""
    program: str = ""
    reason: str = ""


def look(release: str) -> Found:
    """Return the Python of a release, as it says itself: that a name is on PATH proves nothing."""
    name = f"python{release}"
    program = shutil.which(name)
    if program is None:
        return Found(release, reason=f"{name} is not on PATH")
    # The shims of pyenv run nothing but the version that is chosen.
    environment = {**os.environ, "PYENV_VERSION": release}
    try:
        done = subprocess.run(  # noqa: S603
            [program, "-I", "-c", ASK],
            env=environment,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Found(release, reason=f"{name} does not run: {error}")
    if done.returncode != 0:
        said = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit status {done.returncode}")
        return Found(release, reason=f"{name} does not run or cannot make environments: {said}")
    version, _, place = done.stdout.strip().partition(" ")
    if version.rpartition(".")[0] != release:
        return Found(release, reason=f"{name} is Python {version}")
    return Found(release, version, place)


def further() -> list[str]:
    """Return the releases but that of the Python that asks."""
    own = "{}.{}".format(*sys.version_info[:2])
    return [release for release in RELEASES if release != own]


def line(found: Sequence[Found]) -> str:
    """Return one line of all: versions, and reasons where there is none."""
    told = [one.version or f"no {one.release} ({one.reason})" for one in found]
    return f"further Pythons: {', '.join(told)}"


if __name__ == "__main__":
    every = [look(release) for release in further()]
    print(line(every), file=sys.stderr)
    there = [one for one in every if one.program]
    for one in there:
        print(one.release, one.program)
    sys.exit(0 if there else 1)
