"""Bring Enflame's driver into the kernel: unload, install, load, each step's failure in words."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from .enflame_driver import MARK, MODULE

# argv to status and both outputs.
Run = Callable[[list[str]], "tuple[int, str, str]"]
LINES = 5
PIECE = 1 << 20


class InstallError(Exception):
    """A step failed; `told` says what was expected and found, and what to do."""

    def __init__(self, message: str, **told: Any) -> None:
        super().__init__(message)
        self.told = told


def steps(wanted: Mapping[str, Any]) -> list[list[str]]:
    """Return the commands in order, without the paths of the tools."""
    commands = [["rmmod", one] for one in wanted["unload"]]
    if wanted["file"]:
        commands.append(["bash", wanted["file"], *wanted["arguments"]])
    return commands + [["modprobe", one] for one in wanted["load"]]


def prove(file: str, expected: str) -> None:
    """Refuse a file that is not the one whose checksum was given."""
    content = hashlib.sha256()
    try:
        with open(file, "rb") as handle:
            for piece in iter(lambda: handle.read(PIECE), b""):
                content.update(piece)
        found = content.hexdigest()
    except OSError as error:
        found = str(error)
    if found != expected.lower():
        raise InstallError(
            f"{file} on this host is not the file whose checksum was given",
            expected=expected,
            found=found,
            where=file,
            fix="remove it and run again; the file is then copied again",
        )


def bring(wanted: Mapping[str, Any], run: Run, kernel: str, root: str = "/") -> None:
    """Do all steps; what dies in between leaves a mark, by which the next run begins anew.

    Raises InstallError where a step fails. Nothing is installed under a module that stays.
    """
    if wanted["file"]:
        prove(wanted["file"], wanted["sha256"])
    left: list[str] = []
    for module in wanted["unload"]:
        try:
            _unload(module, run, root)
        except InstallError:
            # The host computed with what has left already: it gets that back.
            for one in reversed(left):
                run(["modprobe", one])
            raise
        left.append(module)
    mark = Path(root) / MARK
    if wanted["file"]:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps({name: wanted[name] for name in ("version", "sha256")}))
        _install(wanted, run, kernel)
    for module in wanted["load"]:
        _load(module, run, kernel)
    if wanted["file"]:
        mark.unlink()


def _unload(module: str, run: Run, root: str) -> None:
    status, output, error = run(["rmmod", module])
    if status == 0:
        return
    base = Path(root) / "sys/module" / module
    holders = sorted(os.listdir(base / "holders")) if (base / "holders").is_dir() else []
    raise InstallError(
        f"module {module} does not leave the kernel: {last(output, error)}",
        expected=f"rmmod {module} succeeds",
        found=last(output, error),
        where=f"/sys/module/{module}" + (f", held by {', '.join(holders)}" if holders else ""),
        fix="stop what holds it (lsof /dev/gcu*), or reboot; nothing was installed",
        command=["rmmod", module],
    )


def _install(wanted: Mapping[str, Any], run: Run, kernel: str) -> None:
    command = ["bash", wanted["file"], *wanted["arguments"]]
    status, output, error = run(command)
    if status != 0:
        raise InstallError(
            f"the driver's installer ended with {status}: {last(output, error)}",
            expected=f"driver {wanted['version']} installed for kernel {kernel}",
            found=last(output, error),
            where=wanted["file"],
            fix="fix what it reports and run again: the installer starts from the beginning",
            command=command,
        )
    found = version(run, kernel)
    if found != wanted["version"]:
        raise InstallError(
            f"the installer brought driver {found or 'none'} for kernel {kernel}",
            expected=wanted["version"],
            found=found or f"no module {MODULE} for kernel {kernel}",
            where=wanted["file"],
            fix="correct enflame_driver_version, or give the file that brings it for this kernel",
            command=command,
        )


def version(run: Run, kernel: str) -> str:
    """Return the version of the module that this kernel would load; empty without one."""
    status, output, _ = run(["modinfo", "-k", kernel, "-F", "version", MODULE])
    return output.strip() if status == 0 else ""


def _load(module: str, run: Run, kernel: str) -> None:
    status, output, error = run(["modprobe", module])
    if status != 0:
        raise InstallError(
            f"module {module} is not taken by the kernel: {last(output, error)}",
            expected=f"modprobe {module} succeeds on kernel {kernel}",
            found=last(output, error),
            where=f"kernel {kernel}",
            fix="`dmesg | tail` says why: another kernel's module, or secure boot; run again",
            command=["modprobe", module],
        )


def last(output: str, error: str) -> str:
    """Return the end of what a command said."""
    said: Optional[str] = error.strip() or output.strip()
    return " / ".join((said or "nothing").splitlines()[-LINES:])
