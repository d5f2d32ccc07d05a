"""Run the commands of a build, and say how far they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from . import launcher
from .failure import Failure

Report = Callable[..., None]
_LOOK_SECONDS = 0.5


class BuildError(Failure):
    """The environment cannot be built."""


def run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a short command; it has to succeed."""
    output_of(command, environment)


def output_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a short command prints; it has to succeed."""
    result = subprocess.run(  # noqa: S603  argv built by our callers, no shell
        list(command), env=dict(environment), cwd="/", capture_output=True, text=True, check=False
    )
    expect_success(result.returncode, command, result.stderr or result.stdout, "a command failed")
    return result.stdout


def watch(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: BinaryIO,
    errors: BinaryIO,
    look: Callable[[int], None],
) -> int:
    """Run a long command, look at its process number now and then, and return its status."""
    process = subprocess.Popen(  # noqa: S603  argv built by our callers, no shell
        list(command), env=dict(environment), cwd="/", stdout=output, stderr=errors
    )
    while True:
        try:
            return process.wait(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            look(process.pid)


def expect_success(status: int, command: Sequence[str], said: str, msg: str) -> None:
    """Raise BuildError with the last words of a command that failed."""
    if status != 0:
        raise BuildError(
            msg,
            expected="exit status 0",
            found=last_lines(said),
            command=" ".join(command[:2]) + " ..." if "-c" in command else " ".join(command),
        )


def working(what: str, report: Report) -> Callable[[int], None]:
    """Say that something begins; return what tells how much a process has done of it."""
    report(None, None, "", what)
    return lambda pid: report(None, None, "", f"{what}{work_of(pid)}")


def work_of(pid: int) -> str:
    """Return what a process has done so far, which stands still only when it hangs."""
    if not os.path.exists(f"/proc/{pid}/stat"):
        return ""
    # What runs an image works through a child.
    pids = {pid, *launcher.descendants({pid}, launcher.process_table())}
    work = sum(map(processor_seconds, pids))
    read = sum(bytes_of(one, "rchar") for one in pids)
    return f", {work:.0f} s of work, {read >> 20} MiB read"


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    try:
        # The command name may hold spaces and brackets: only what follows it is fixed.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def bytes_of(pid: int, counter: str) -> int:
    """Return how much a process has read (rchar) or written (wchar)."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{counter}:"))


def text_of(stream: Any) -> str:
    """Return all that was written to a temporary file."""
    stream.seek(0)
    content: bytes = stream.read()
    return content.decode(errors="replace")


def last_lines(text: str, count: int = 4) -> str:
    """Return the end of a tool's output on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])
