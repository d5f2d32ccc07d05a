"""An environment that one host builds and packs, for every host to have where its own would lie.

Environments cannot be moved, so a pack is good for one path and one architecture, and its record is
named by them. Both lie in the directory that hosts share; without a record there is no pack.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..build_command import BuildError, Report, expect_success, text_of, watch, working
from . import build as environment
from . import carried_python, image_mount, shared_environment, uv_command

SUFFIXES = {"copy": ".tar.gz", "image": ".squashfs"}
TOOLS = {"copy": ("tar", "gzip"), "image": ("mksquashfs",)}


def record_path(shared_dir: str, place: Path, form: str) -> Path:
    """Return where the record of what is packed for `place` on this architecture lies."""
    good_for = hashlib.sha256(f"{place} {platform.machine()}".encode()).hexdigest()[:8]
    return Path(shared_dir) / "environments" / f"{place.name}-{good_for}.{form}.json"


def record_of(path: Path, built: Mapping[str, str]) -> dict[str, Any]:
    """Return what is recorded of a complete pack; nothing where there is none.

    built are the digests of those of our own builds that the host has, as in environment.look.
    """
    try:
        # On NFS a name that was missing a moment ago stays so until its directory is read again.
        os.listdir(path.parent)
        record: dict[str, Any] = json.loads(path.read_text())
        whole = (path.parent / record["file"]).stat().st_size == record["size"]
        other = any(record["wheels"].get(name) != digest for name, digest in built.items())
        return record if whole and not other else {}
    except (OSError, ValueError, KeyError):
        return {}


def missing_tools(form: str) -> list[str]:
    """Return the programs that packing needs and this host lacks."""
    return [name for name in TOOLS[form] if not shutil.which(name)]


def build(wanted: dict[str, Any], report: Report) -> dict[str, Any]:
    """Build the environment here unless it is there, pack it, and return its manifest."""
    place, path = Path(wanted["directory"]), Path(wanted["record"])
    if is_there(wanted):
        manifest = shared_environment.prove(wanted, report)
    else:
        image_mount.unmount(place, uv_command.build_environment(wanted))
        manifest = shared_environment.build(wanted, report)
    os.umask(0o022)
    interpreter = carried_python.carry(place, wanted["cluster_dir"])
    had = record_of(path, wanted["built"])
    if (had.get("fingerprint"), had.get("interpreter")) == (manifest["fingerprint"], interpreter):
        return manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # Every pack gets a name of its own: hosts may have an earlier one mounted.
    made = hashlib.sha256(f"{manifest['fingerprint']} {time.time_ns()}".encode()).hexdigest()[:8]
    name = path.name[: -len(f".{wanted['form']}.json")]
    pack = path.with_name(f"{name}-{made}{SUFFIXES[wanted['form']]}")
    partial = path.with_name(f".{name}{SUFFIXES[wanted['form']]}.{socket.gethostname()}")
    partial.unlink(missing_ok=True)
    _run(_packing(wanted["form"], place, partial), wanted, "packing the environment", report)
    partial.replace(pack)
    record = {
        **{"file": pack.name, "size": pack.stat().st_size},
        **{"directory": str(place), "machine": platform.machine()},
        **{"interpreter": interpreter, "python": manifest["versions"]["python"]},
        **{"fingerprint": manifest["fingerprint"], "wheels": manifest["wheels"]},
    }
    unfinished = Path(f"{path}.partial")
    unfinished.write_text(json.dumps(record, indent=1, sort_keys=True))
    unfinished.replace(path)
    return manifest


def begin(wanted: dict[str, Any], record: Mapping[str, Any]) -> None:
    """Do what comes before `take`, at once: unmount what was there and mount an image of now.

    A process that serves a mount would end with the detached task that had started it.
    """
    place = Path(wanted["directory"])
    variables = uv_command.build_environment(wanted)
    carried_python.expect(record["interpreter"], record["python"], variables)
    if _same(wanted, record):
        return
    # First of all: what runs from there keeps all else from being done.
    image_mount.unmount(place, variables)
    # Nothing that was proven before says anything of what comes now.
    shared_environment.proof(wanted["cluster_dir"], wanted["digest"]).unlink(missing_ok=True)
    if wanted["form"] == "image":
        before = _before(place)
        if place.exists():
            place.rename(before)
        try:
            image_mount.mount(_pack(wanted, record), place, variables)
        except (BuildError, OSError):
            with suppress(OSError):
                place.rmdir()
            if before.exists():
                before.rename(place)
            raise
        if before.exists():
            shutil.rmtree(before)


def take(wanted: dict[str, Any], report: Report) -> dict[str, Any]:
    """Unpack here what another host has packed, prove it or what `begin` has mounted.

    Returns the manifest.
    """
    place, record = Path(wanted["directory"]), record_of(Path(wanted["record"]), wanted["built"])
    os.umask(0o022)
    if record and wanted["form"] == "copy" and not _same(wanted, record):
        _unpack(_pack(wanted, record), place, wanted, report)
    carried_python.bring(place, wanted["cluster_dir"])
    if not record or not _same(wanted, record):
        raise BuildError(
            "what was packed is not what its record says",
            expected=f"fingerprint {record.get('fingerprint', 'of a record')}",
            found=_fingerprint(place) or "no manifest",
            where=wanted["record"],
            fix="remove that record: the next run packs again",
        )
    return shared_environment.prove(wanted, report)


def is_there(wanted: Mapping[str, Any]) -> bool:
    """Tell whether what lies here is complete and of the wanted form.

    The host that has built it keeps what it built; an image that is mounted is no copy.
    """
    place = Path(wanted["directory"])
    if wanted["form"] == "copy" and image_mount.is_mounted(place):
        return False
    return bool(environment.look(place, wanted["digest"], wanted["built"])["complete"])


def why_not(wanted: Mapping[str, Any]) -> dict[str, str]:
    """Say why nothing can be taken from the shared directory, as modules fail."""
    path, place = Path(wanted["record"]), Path(wanted["directory"])
    there = path.parent.glob(f"{place.name}-*.{wanted['form']}.json")
    records = [record_of(one, wanted["built"]) for one in sorted(there)]
    others = [f"one for {one['directory']} on {one['machine']}" for one in records if one]
    return {
        "msg": "this host finds no packed environment to take",
        "expected": f"{path.name} of the first host, for {place} on {platform.machine()}",
        "found": ", ".join(others) or f"none in {path.parent}",
        "where": str(path.parent),
        "fix": "mount environment_shared_dir on every host; give all of them one cluster_dir and "
        "one architecture, or leave it out: then each builds its own",
    }


def _packing(form: str, place: Path, pack: Path) -> list[str]:
    if form == "image":
        return [
            *("mksquashfs", str(place), str(pack), "-noappend", "-all-root", "-no-progress"),
            # Higher levels take minutes for torch and save little.
            *("-comp", "zstd", "-Xcompression-level", "3"),
        ]
    return [
        *("tar", "--create", "--use-compress-program=gzip -1", "--owner=0", "--group=0"),
        *(f"--file={pack}", f"--directory={place}", "."),
    ]


def _unpack(pack: Path, place: Path, wanted: Mapping[str, Any], report: Report) -> None:
    """Put a copy in place of what lies there, whole or not at all."""
    before, partial = _before(place), place.with_name(f".{place.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir()
    command = ["tar", "--extract", "--gzip", "--no-same-owner"]
    command += [f"--file={pack}", f"--directory={partial}"]
    _run(command, wanted, "unpacking the environment", report)
    if place.exists():
        place.rename(before)
    partial.rename(place)
    if before.exists():
        shutil.rmtree(before)


def _before(place: Path) -> Path:
    """Return where what lies there goes: a process may have its files open until it ends."""
    place.parent.mkdir(parents=True, exist_ok=True)
    before = place.with_name(f".{place.name}.before")
    if before.exists():
        shutil.rmtree(before)
    return before


def _pack(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> Path:
    return Path(wanted["record"]).with_name(record["file"])


def _same(wanted: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Tell whether what is recorded lies here."""
    same = _fingerprint(Path(wanted["directory"])) == record["fingerprint"]
    return same and is_there(wanted)


def _fingerprint(place: Path) -> str:
    """Return that of the manifest that lies there."""
    try:
        return str(json.loads((place / environment.MANIFEST).read_text())["fingerprint"])
    except (OSError, ValueError, KeyError):
        return ""


def _run(command: list[str], wanted: Mapping[str, Any], what: str, report: Report) -> None:
    variables = uv_command.build_environment(wanted)
    with tempfile.TemporaryFile() as output:
        status = watch(command, variables, output, output, working(what, report))
        expect_success(status, command, text_of(output), f"{what} failed")
