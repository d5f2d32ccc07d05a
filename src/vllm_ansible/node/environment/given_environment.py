"""An environment that somebody else has made: used as it is, with ours laid over it.

Nothing is installed into it. A virtual environment of its Python takes our own packages and loads
the other's, so that all that looks, proves and starts works as with one that was built here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from .. import forked, launcher
from ..build_command import BuildError, output_of
from ..failure import expect_user

# Where its packages lie, a directory a line.
SITES = "given.txt"
LOOK_SECONDS = 60.0
COMMANDS = ("vllm", "ray")
# FlashInfer and PyTorch compile with it, and look for it on PATH alone, where only ours comes.
PROGRAMS = ("ninja",)
# Run by its own Python.
ASK = """
import json, sys, sysconfig
from importlib.metadata import entry_points
sites = list(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")))
scripts = {one.name: one.value for one in entry_points(group="console_scripts")}
print(json.dumps({"sites": sites, "scripts": scripts, "version": sys.version_info[:2]}))
"""
# Runs wherever it lies, however long its path is, which `#!` alone does not.
SCRIPT = """\
#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
import sys
from {module} import {function}
# Children that are spawned import this file.
if __name__ == "__main__":
    sys.exit({function}())
"""


def interpreter(given: str) -> Path:
    """Return the Python of a given environment; raise BuildError where it has none."""
    found = Path(given) / "bin" / "python"
    if not found.exists():
        raise BuildError(
            "there is no environment to use",
            expected=f"{found}, of a virtual or conda environment with vLLM and Ray",
            found="no such file" if Path(given).is_dir() else f"no directory {given}",
            where=given,
            fix="correct environment_path, or mount what it names on this host",
        )
    return found


def expect(given: str, user: Optional[str] = None) -> None:
    """Raise BuildError where there is none, or the user that engines run as may not read it."""
    interpreter(given)
    if user:
        expect_readable(given, user)


def expect_readable(given: str, user: str) -> None:
    """Raise BuildError where the user that engines run as may not load from there.

    Root made the check of imports, and root may read a home directory that nobody else may enter.
    """
    expect_user(user, BuildError)

    def look(tell: forked.Tell) -> None:
        launcher.become(user)
        try:
            os.listdir(os.path.join(given, "lib"))
            with open(os.path.join(given, "bin", "python"), "rb"):
                pass
        except OSError as error:
            tell("closed", f"{error.filename}: {error.strerror}")

    found = forked.run_each([look], LOOK_SECONDS, OSError)[0]
    if why := found.get("closed") or found.get("error"):
        raise BuildError(
            f"{user}, which engines run as, may not use the given environment",
            expected=f"files that {user} may read",
            found=why,
            where=given,
            fix="let others enter and read every directory above it (chmod o+rx), or make it "
            "below /opt or /srv",
        )


def join(place: Path, given: str, environment: Mapping[str, str]) -> None:
    """Have the environment at `place`, of the same Python, load what the given one has."""
    asked = [str(interpreter(given)), "-c", ASK]
    told: dict[str, Any] = json.loads(output_of(asked, environment).strip().splitlines()[-1])
    missing = [name for name in COMMANDS if name not in told["scripts"]]
    if missing:
        raise BuildError(
            f"the given environment has no command {' and no '.join(missing)}",
            expected="vLLM and Ray, installed with their commands",
            found=f"{len(told['scripts'])} other commands",
            where=given,
            fix="install them there, or leave environment_path out: then one is built",
        )
    own = place / "lib" / "python{}.{}".format(*told["version"]) / "site-packages"
    # As its own Python does: with those of its packages that are elsewhere, such as editable ones.
    lines = [f"import site; site.addsitedir({site!r})" for site in told["sites"]]
    (own / "given.pth").write_text("\n".join(lines) + "\n")
    for name in COMMANDS:
        module, _, function = told["scripts"][name].partition(":")
        script = place / "bin" / name
        script.write_text(SCRIPT.format(module=module, function=function.split()[0]))
        script.chmod(0o755)
    for name in PROGRAMS:
        theirs, ours = Path(given) / "bin" / name, place / "bin" / name
        if theirs.exists() and not os.path.lexists(ours):
            ours.symlink_to(theirs)
    # Last: without it nothing of the given one counts as there.
    (place / SITES).write_text("\n".join(told["sites"]) + "\n")


def sites(place: Path) -> list[Path]:
    """Return where packages of the given environment lie; none for one that was built here."""
    try:
        return [Path(line) for line in (place / SITES).read_text().splitlines()]
    except OSError:
        return []
