"""An Apptainer image that somebody else has made: used as it is, with ours laid over it.

The environment at its place holds a program that runs in the image what it is called as, and our
packages, which it puts before those of the image. Nothing is written into the image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from .. import forked, launcher
from ..build_command import BuildError, output_of
from ..failure import expect_user
from . import image_program, wheel

RECORD = "image.json"
PACKAGES = "packages"
SUFFIXES = (".sif", ".simg", ".sqsh", ".squashfs")
# A directory that `apptainer build --sandbox` has made has it.
METADATA = ".singularity.d"
RUNTIMES = ("apptainer", "singularity")
# Of an image that has one line for the kernel before it, and of a bare squashfs.
MAGIC = ((32, b"SIF_MAGIC"), (0, b"hsqs"))
# Where an image says when it was made, and what of what size it holds.
HEADER_BYTES = 65536
LOOK_SECONDS = 60.0
# Run by the image's own Python.
ASK = """
import glob, json, os, shutil, sys, sysconfig
places = [one for one in dict.fromkeys(sys.path) if one and not one.startswith(sys.argv[1])]
print("\\n" + json.dumps({
    "sites": {one: [os.path.basename(entry) for entry in glob.glob(one + "/*.dist-info")]
              for one in places},
    "commands": [name for name in ("vllm", "ray") if shutil.which(name)],
    "compiler": bool(shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "version": sys.version.split()[0],
}))
"""


def is_image(given: str) -> bool:
    """Tell whether a path is that of an image, also where there is nothing yet."""
    path = given.rstrip("/")
    return (
        path.endswith(SUFFIXES)
        or os.path.isfile(path)
        or os.path.isdir(os.path.join(path, METADATA))
    )


def expect(given: str, user: Optional[str] = None) -> None:
    """Raise BuildError where there is no image, nothing to run it, or the user may not read it."""
    told = {"where": given, "fix": "correct environment_path, or mount what it names on this host"}
    if not os.path.exists(given):
        raise BuildError(
            "there is no image to use",
            expected="an image of Apptainer with vLLM and Ray",
            found=f"no file {given}",
            **told,
        )
    if user:
        _expect_readable(given, user)
    if os.path.isfile(given):
        try:
            head = _head(given)
        except OSError as error:
            raise BuildError(
                "the image cannot be read",
                expected="a file that this user may read",
                found=f"{error.filename}: {error.strerror}",
                **told,
            ) from error
        if not any(head[at : at + len(word)] == word for at, word in MAGIC):
            raise BuildError(
                "environment_path does not name an image",
                expected="a file of Apptainer (SIF) or squashfs, or a sandbox directory",
                found=f"a file that begins with {head[:16]!r}",
                **told,
            )
    elif not os.path.isdir(os.path.join(given, METADATA)):
        raise BuildError(
            "environment_path does not name an image",
            expected=f"a directory with {METADATA}, as `apptainer build --sandbox` makes it",
            found="a directory without",
            **told,
        )
    if not any(shutil.which(name) for name in RUNTIMES):
        raise BuildError(
            "no program that runs an image was found",
            expected=f"{' or '.join(RUNTIMES)} on PATH",
            found=f"neither in {os.environ.get('PATH', '')}",
            where=given,
            fix="have the site install Apptainer; where a module brings it, name that in site_setup"
            " (module load apptainer)",
        )


def _expect_readable(given: str, user: str) -> None:
    """Raise BuildError where the user that engines run as may not read the image."""
    expect_user(user, BuildError)

    def look(tell: forked.Tell) -> None:
        launcher.become(user)
        try:
            if os.path.isdir(given):
                os.listdir(given)
            else:
                _head(given)
        except OSError as error:
            tell("closed", f"{error.filename}: {error.strerror}")

    found = forked.run_each([look], LOOK_SECONDS, OSError)[0]
    if why := found.get("closed") or found.get("error"):
        raise BuildError(
            f"{user}, which engines run as, may not use the image",
            expected=f"an image that {user} may read",
            found=why,
            where=given,
            fix="let others enter every directory above it and read it (chmod o+rx, o+r)",
        )


def lay(place: Path, wanted: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Have `place` run what the image has, with our packages; raise BuildError where it lacks some.

    wanted: given, packages, cluster_dir, accelerator and compiles.
    """
    given = wanted["given"]
    expect(given)
    (place / RECORD).unlink(missing_ok=True)
    _unpack(place, wanted["packages"])
    _write_programs(place, wanted)
    # It is theirs, and a file cannot be written into at all.
    quiet = {**environment, "PYTHONDONTWRITEBYTECODE": "1"}
    asked = [str(place / "bin" / "python"), "-c", ASK, str(place)]
    told: dict[str, Any] = json.loads(output_of(asked, quiet).strip().splitlines()[-1])
    _expect_complete(given, told, wanted["compiles"])
    content = {
        "image": given,
        "stamp": stamp(given),
        "programs": _programs(place),
        "sites": told["sites"],
    }
    # Last: without it nothing of the image counts as there.
    launcher.write_json(str(place / RECORD), content, 0o644)


def _unpack(place: Path, packages: list[dict[str, Any]]) -> None:
    """Put our packages beside the programs."""
    for package in packages:
        with zipfile.ZipFile(io.BytesIO(wheel.wheel_bytes(package))) as archive:
            archive.extractall(place / PACKAGES)


def _write_programs(place: Path, wanted: Mapping[str, Any]) -> None:
    """Write the program, under each of its names."""
    folder = place / "bin"
    folder.mkdir(exist_ok=True)
    # On a shared file system what lies above has the directories of the other hosts, too.
    binds = " ".join(shlex.quote(str(one)) for one in _own(place, wanted["cluster_dir"]))
    text = image_program.program(
        wanted["given"],
        shlex.quote(str(place / PACKAGES)),
        binds,
        wanted.get("accelerator") or "",
    )
    for name in image_program.NAMES:
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)


def _own(place: Path, cluster_dir: str) -> list[str]:
    """Return the directories of ours that are shown in the image."""
    return list(dict.fromkeys([str(place.parents[1]), cluster_dir]))


def _expect_complete(given: str, told: Mapping[str, Any], compiles: bool) -> None:
    missing = [name for name in ("vllm", "ray") if name not in told["commands"]]
    if missing:
        raise BuildError(
            f"the image has no command {' and no '.join(missing)}",
            expected="vLLM and Ray, on the PATH that the image sets",
            found=f"Python {told['version']}, and neither of them"
            if len(missing) > 1
            else f"Python {told['version']}, and {told['commands'][0]} alone",
            where=given,
            fix="put them into the image and on its PATH (%environment, or ENV), or leave "
            "environment_path out: then an environment is built",
        )
    lacks = [name for name in ("compiler", "headers") if not told[name]]
    if compiles and lacks:
        raise BuildError(
            "engines cannot compile in the image, as Triton does while they start",
            expected="a C compiler, and the headers of its Python",
            found="; ".join(f"no {name}" for name in lacks),
            where=given,
            fix=f"install gcc and the development files of Python {told['version']} in the image",
        )


def stamp(given: str) -> str:
    """Return what tells an image from another one, also from its copy; empty where it is not there.

    Not all of it is read: a file has 15 GB. Its head says when it was made and of what parts. Of a
    sandbox its directories tell what is in it.
    """
    try:
        if os.path.isdir(given):
            return "sandbox"
        digest = hashlib.sha256(_head(given)).hexdigest()[:12]
        return f"{os.stat(given).st_size} bytes with the head {digest}"
    except OSError:
        return ""


def _head(given: str) -> bytes:
    with open(given, "rb") as file:
        return file.read(HEADER_BYTES)


def _programs(place: Path) -> str:
    """Return a digest of what is started there."""
    digest = hashlib.sha256()
    for name in image_program.NAMES:
        with suppress(OSError):
            digest.update((place / "bin" / name).read_bytes())
    return digest.hexdigest()[:12]


def recorded(place: Path) -> dict[str, Any]:
    """Return what is recorded of the image; nothing for another environment."""
    try:
        found: dict[str, Any] = json.loads((place / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found


def entries(place: Path) -> list[Path]:
    """Return the `.dist-info` of all that is in an image and over it, by path inside."""
    found = recorded(place)
    if not found:
        return []
    inside = {Path(site): names for site, names in found["sites"].items()}
    if os.path.isdir(found["image"]):
        sites = [Path(found["image"] + str(site)) for site in inside]
        there = [entry for site in sites for entry in site.glob("*.dist-info")]
    else:
        there = [site / name for site, names in inside.items() for name in names]
    return [*there, *(place / PACKAGES).glob("*.dist-info")]


def condition(place: Path) -> dict[str, str]:
    """Return what else tells whether an image is the one that was there, and run as it was."""
    found = recorded(place)
    if not found:
        return {}
    now = stamp(found["image"])
    state = {os.path.basename(found["image"].rstrip("/")): now} if now else {}
    if _programs(place) != found["programs"]:
        state["programs in bin"] = "others"
    return state
