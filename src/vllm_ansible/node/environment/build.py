"""Build the engine's Python environment on a host and say what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from ..build_command import (
    BuildError,
    Report,
    bytes_of,
    expect_success,
    last_lines,
    output_of,
    run,
    text_of,
    watch,
    working,
)
from . import given_environment, given_image, own_wheels, uv_command

MANIFEST = "manifest.json"
# What engines load beyond the check of imports lies mostly here.
COMPILED = ("ray", "vllm")

# Run by the environment's own Python. It also loads what every process of an engine loads, so that
# the bytecode exists before a service user who may not write here starts one. The collector of
# garbage, which finds none among modules, would take a quarter of the time.
IMPORT_CHECK = """
import gc, json, platform, sys
gc.disable()
import ray, torch, vllm
from vllm.platforms import current_platform
import vllm.entrypoints.cli.serve
print("\\n" + json.dumps({
    "python": platform.python_version(), "vllm": vllm.__version__, "ray": ray.__version__,
    "torch": torch.__version__, "platform": type(current_platform).__name__,
}))
"""


def directory(base: str, digest: str) -> Path:
    """Return where the environment of this digest lies, below a cluster's or a shared directory."""
    return Path(base) / "environments" / digest[:12]


def look(place: Path, digest: str, built: Optional[Mapping[str, str]] = None) -> dict[str, Any]:
    """Tell whether the environment is complete and still what was built; a few directory reads.

    built are the digests of those of our own builds that the host has: one may have been made anew.
    """
    # On NFS a name that was missing a moment ago stays so until its directory is read again.
    for listed in (place.parent, place):
        with suppress(OSError):
            os.listdir(listed)
    try:
        manifest = json.loads((place / MANIFEST).read_text())
    except (OSError, ValueError):
        return {"complete": False, "manifest": {}, "drift": []}
    drift = difference(manifest.get("distributions", {}), distributions(place))
    had = manifest.get("wheels", {})
    drift += difference({name: had.get(name, "") for name in built or {}}, built or {})
    complete = manifest.get("digest") == digest and not drift and python(place).exists()
    return {"complete": complete, "manifest": manifest, "drift": drift}


def summary(place: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what other stages need to know of a complete environment."""
    image = given_image.recorded(place).get("image")
    return {
        "directory": str(place),
        "python": str(python(place)),
        "fingerprint": manifest.get("fingerprint", ""),
        "versions": manifest.get("versions", {}),
        **({"apptainer": image} if image else {}),
    }


def python(place: Path) -> Path:
    """Return the environment's interpreter."""
    return place / "bin" / "python"


def distributions(place: Path) -> dict[str, str]:
    """Return what is installed, by name, as the directory itself tells, and the one below it."""
    found = given_image.condition(place)
    below = [entry for site in given_environment.sites(place) for entry in site.glob("*.dist-info")]
    below += given_image.entries(place)
    for entry in [*below, *place.glob("lib/python3.*/site-packages/*.dist-info")]:
        name, _, version = entry.name[: -len(".dist-info")].partition("-")
        found[name.lower().replace("_", "-")] = version
    return found


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Name each distribution that is not as it was recorded."""
    return [
        f"{name}: expected {wanted.get(name, 'nothing')}, found {found.get(name, 'nothing')}"
        for name in sorted({*wanted, *found})
        if wanted.get(name) != found.get(name)
    ]


def fingerprint(
    versions: Mapping[str, str], installed: Mapping[str, str], built: Mapping[str, str]
) -> str:
    """Return one value that is equal on two hosts exactly when they run the same code.

    built are the digests of our own builds, of which a version says too little.
    """
    parts = [dict(versions), dict(installed), *([dict(built)] if built else [])]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def locked(requirements: str) -> int:
    """Return how many distributions a lock names."""
    return len(re.findall(r"^[A-Za-z0-9][A-Za-z0-9._\[\],-]*==", requirements, re.MULTILINE))


def build(wanted: dict[str, Any], report: Report) -> dict[str, Any]:
    """Build the environment where it will stay, and return its manifest.

    Environments cannot be moved, so it is complete when its manifest is there, which comes last.
    """
    started = time.time()
    os.umask(0o022)
    place = Path(wanted["directory"])
    if (place / MANIFEST).exists() and python(place).exists():
        # It changed under us: mend it in place, since processes may be running from it.
        (place / MANIFEST).unlink()
    elif place.exists():
        # uv makes no environment over another, so one whose interpreter is gone goes, too.
        report(None, None, "", "removing an environment that cannot run")
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    environment = uv_command.build_environment(wanted)
    given = wanted.get("given") or ""
    built = own_wheels.built_records(wanted["cluster_dir"], wanted["wheels"])
    if given and given_image.is_image(given):
        report(None, None, "", f"asking {given} what it has")
        given_image.lay(place, wanted, environment)
    else:
        fill(place, wanted, built, environment, report)
    versions = check_imports(place, environment, report)
    if wanted["compile_bytecode"] and not given:
        compile_bytecode(place, environment, report)
    installed = distributions(place)
    digests = {name: record["sha256"] for name, record in built.items()}
    manifest = {
        "digest": wanted["digest"],
        "versions": versions,
        "distributions": installed,
        "wheels": digests,
        "fingerprint": fingerprint(versions, installed, digests),
        "seconds": round(time.time() - started, 1),
    }
    partial = place / (MANIFEST + ".partial")
    partial.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    partial.replace(place / MANIFEST)
    return manifest


def fill(
    place: Path,
    wanted: dict[str, Any],
    built: Mapping[str, Any],
    environment: dict[str, str],
    report: Report,
) -> None:
    """Make a virtual environment of what a lock names, or over one that somebody else has made."""
    given = wanted.get("given") or ""
    if not python(place).exists():
        version = (
            str(given_environment.interpreter(given))
            if given
            else uv_command.interpreter(wanted["python"])
        )
        run([wanted["uv"], "venv", "--quiet", "--python", version, str(place)], environment)
    if wanted["compiles"]:
        check_headers(place, wanted["python"], environment)

    names = [str(own_wheels.write_packages(place, wanted["packages"], list(built.values())))]
    total = len(wanted["packages"]) + len(built)
    if not given:
        lock = own_wheels.write_lock(place, Path(wanted["requirements"]), list(built))
        names.insert(0, str(lock))
        total += locked(lock.read_text())
    links = uv_command.find_links(wanted["find_links"], environment)
    command = uv_command.sync_command(wanted["uv"], place, names, links, wanted["torch_backend"])
    install(command, environment, place, total, report)
    if given:
        # Not even bytecode: it is somebody else's.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        given_environment.join(place, given, environment)


def install(
    command: Sequence[str], environment: Mapping[str, str], place: Path, total: int, report: Report
) -> None:
    """Run uv, which reports nothing without a terminal: what it has written tells that it moves.

    It fetches and unpacks all packages elsewhere before it puts the first one here.
    """

    def look(pid: int) -> None:
        done, written = min(len(distributions(place)), total), bytes_of(pid, "wchar") >> 20
        if done:
            report(done, total, "packages", f"{written} MiB written")
        else:
            what = f"fetching and unpacking {total} packages, {written} MiB written"
            report(None, None, "", what)

    log = place / "install.log"
    with log.open("wb") as output:
        status = watch(command, environment, output, output, look)
    if status != 0:
        raise BuildError(
            "uv could not install the locked packages",
            expected=f"{total} packages from {Path(command[-1]).name} and its lock",
            found=last_lines(log.read_text(errors="replace")),
            where=str(place),
            command=" ".join(command),
            fix="make the package index reachable from this host, or name a directory of wheels in "
            "environment_find_links",
        )


def check_headers(place: Path, release: str, environment: Mapping[str, str]) -> None:
    """Refuse a Python without its headers: Triton compiles against them while the engine starts.

    The system's package of another release than its own often comes without; uv's bring theirs.
    """
    ask = [str(python(place)), "-c", "import sysconfig; print(sysconfig.get_path('include'))"]
    include = output_of(ask, environment).strip()
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise BuildError(
            f"the headers of Python {release} are missing",
            expected=f"a file {include}/Python.h",
            found="no such file",
            where=str(python(place).resolve()),
            fix=f"install python{release}-dev (Debian, Ubuntu) or python{release}-devel here,"
            " or remove that Python: uv then fetches one that has them",
        )


def check_imports(place: Path, environment: Mapping[str, str], report: Report) -> dict[str, str]:
    """Import the engine once and return the versions it reports.

    It takes seconds, and minutes on an overloaded machine: what it has done so far is its progress.
    """
    command = [str(python(place)), "-c", IMPORT_CHECK]
    look = working("importing vllm, ray and torch", report)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = watch(command, environment, output, errors, look)
        said, complained = text_of(output), text_of(errors)
    expect_success(status, command, complained or said, "the engine does not import")
    versions = json.loads(said.strip().splitlines()[-1])
    return {name: str(version) for name, version in versions.items()}


def compile_bytecode(place: Path, environment: Mapping[str, str], report: Report) -> None:
    """Compile what the check of imports did not load and engines do.

    All of an environment is five times as many files; most of them nobody imports. A file that does
    not compile is no failure here: there are some for another Python, which nothing loads.
    """
    folders = [
        str(folder)
        for name in COMPILED
        for folder in sorted(place.glob(f"lib/python3.*/site-packages/{name}"))
    ]
    command = [str(python(place)), "-m", "compileall", "-q", *folders]
    with tempfile.TemporaryFile() as output:
        watch(command, environment, output, output, working("compiling vllm and ray", report))


def same_everywhere(manifests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what differs between hosts, against the first of them; nothing when all are equal."""
    hosts = list(manifests)
    problems = []
    for host in hosts[1:]:
        first, other = manifests[hosts[0]], manifests[host]
        if first.get("fingerprint") == other.get("fingerprint"):
            continue
        lines = [
            line
            for part in ("distributions", "versions", "wheels")
            for line in difference(first.get(part, {}), other.get(part, {}))
        ]
        text = "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if len(lines) > 5 else "")
        problems.append(f"{host} against {hosts[0]}: {text or 'no manifest'}")
    return problems
