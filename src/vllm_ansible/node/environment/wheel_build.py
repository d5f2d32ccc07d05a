"""Build wheels from source on a host, and say how far that is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import launcher
from ..build_command import BuildError, Report, last_lines, processor_seconds, run, watch
from ..log_file import end_of
from . import built_wheels, uv_command

TAIL_BYTES = 4096
# What ninja and CMake print before each of their steps.
STEP = re.compile(r"\[\s*(\d+)/(\d+)\]")
PERCENT = re.compile(r"^\[\s*(\d+)%\]")
# How compilers, linkers, CMake, cargo and Python begin to say what is wrong.
FIRST_ERROR = re.compile(
    r"\b(?i:error)(\[\w+\])?\s*:|^CMake Error|undefined reference|^ld: |\b[A-Z]\w*Error: "
)
FIX = (
    "fix the source, or settings and environment of its entry in engine_build; system packages "
    "that a build needs go into wheels_packages"
)


def build(wanted: dict[str, Any], report: Report) -> list[dict[str, Any]]:
    """Build what is missing of `builds`, one after the other, and return the records.

    What an interrupted build left is removed: it is not known how far its last file came.
    """
    os.umask(0o022)
    cluster_dir = wanted["cluster_dir"]
    built_wheels.remove_others(cluster_dir, wanted["keys"])
    records = []
    for one in wanted["builds"]:
        found = built_wheels.look(cluster_dir, one["key"])
        records.append(found or build_one(one, wanted, report))
    return records


def build_one(one: Mapping[str, Any], wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Build one wheel and put it, with its record, where the host keeps it."""
    started = time.time()
    place = built_wheels.place(wanted["cluster_dir"], one["key"])
    work = Path(f"{place}.build")
    if work.exists():
        shutil.rmtree(work)
    (work / "source").mkdir(parents=True)
    archive = built_wheels.source(wanted["cluster_dir"], one["key"])
    run(["tar", "-xzf", str(archive), "-C", str(work / "source")], os.environ)
    variables = uv_command.build_environment({**wanted, "directory": str(place)})
    variables.update(one["environment"])
    links = uv_command.find_links(wanted["find_links"], variables)
    command = [wanted["uv"], "build", "--wheel", "--no-create-gitignore"]
    command += ["--python", uv_command.interpreter(one["python"]), "--out-dir", str(work / "out")]
    for link in links:
        command += ["--find-links", link]
    for name, value in sorted(one["settings"].items()):
        command += ["--config-setting", f"{name}={value}"]
    command.append(str(work / "source" / one["directory"]))

    log = Path(f"{place}.log")
    with log.open("wb") as output:
        status = watch(command, variables, output, output, progress(one["name"], log, report))
    if status != 0:
        text = log.read_text(errors="replace")
        raise BuildError(
            f"{one['name']} could not be built",
            expected=f"a wheel of commit {one['revision'][:12]}",
            found=first_error(text) or last_lines(text),
            where=str(log),
            command=" ".join(command),
            fix=FIX,
        )
    record = {**finished(one, work / "out", log), "seconds": round(time.time() - started, 1)}
    (work / "out" / built_wheels.RECORD).write_text(json.dumps(record, indent=1, sort_keys=True))
    if place.exists():
        shutil.rmtree(place)
    (work / "out").rename(place)
    shutil.rmtree(work)
    archive.unlink()
    return record


def finished(one: Mapping[str, Any], out: Path, log: Path) -> dict[str, Any]:
    """Return the record of what was built, which must be the one wheel that was asked for."""
    wheels = sorted(out.glob("*.whl"))
    names = [re.sub(r"[-_.]+", "-", path.name.partition("-")[0]).lower() for path in wheels]
    if names != [one["name"]]:
        raise BuildError(
            f"the source of {one['name']} builds something else",
            expected=f"one wheel of {one['name']}",
            found=", ".join(path.name for path in wheels) or "none",
            where=str(log),
            fix="correct name or directory in engine_build",
        )
    (wheel,) = wheels
    content = wheel.read_bytes()
    told = ("key", "name", "revision", "system", "python", "cuda", "accelerator", "architecture")
    return {
        **{name: one[name] for name in told},
        "version": wheel.name.split("-")[1],
        "file": wheel.name,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def progress(name: str, log: Path, report: Report) -> Callable[[int], None]:
    """Return what tells how far a build is, by its log and by the work of all its processes.

    A compiler can be silent for many minutes; the processor time stands still only when it hangs.
    """

    def look(pid: int) -> None:
        lines = end_of(str(log), 0, TAIL_BYTES)[0].decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        done, total, unit = steps(said)
        processes = {pid, *launcher.descendants({pid}, launcher.process_table())}
        seconds = sum(processor_seconds(one) for one in processes)
        text = f"{name}: {said[-1][:80]}" if said else name
        report(done, total, unit, f"{text}, {seconds:.0f} s of work")

    report(None, None, "", f"{name}: unpacked")
    return look


def steps(lines: list[str]) -> tuple[Any, Any, str]:
    """Return how many of how many steps the newest line that tells says are done."""
    for line in reversed(lines):
        step, percent = STEP.search(line), PERCENT.match(line)
        if step:
            return int(step[1]), int(step[2]), "steps"
        if percent:
            return int(percent[1]), 100, "%"
    return None, None, ""


def first_error(text: str) -> str:
    """Return the first line in which a tool says what is wrong; the last ones only follow it."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if FIRST_ERROR.search(line)), "")
