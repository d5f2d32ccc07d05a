"""Run long work on a host so that it outlives the connection, and tell how far it is.

A keeper, detached from everything, runs the work in a child and owns the status file. So the work
can belong to another user, and a work that is killed is still reported.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from .. import launcher
from ..log_file import end_of

# All of it is imported before the fork: the module's own directory is gone soon after.
from . import keeper
from .family import kill_family, lives, until
from .process import NAME, ProcessError, read_json

Report = Callable[..., None]
TAIL_BYTES = 16384
STOP_SECONDS = 20.0
KILL_SECONDS = 30.0


@dataclass(frozen=True)
class Command:
    """Work that is a program; its last line of output is its progress."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Files whose content only the program gets; it must be able to read them as its own user.
    secret_environment: Mapping[str, str] = field(default_factory=dict)
    directory: Optional[str] = None
    umask: Optional[int] = None


# A callable takes report(done, total, unit, text) and returns something that JSON can hold. It must
# not import its own package late: that package lies in a directory that Ansible removes.
Work = Union[Command, Callable[[Report], Any]]


def paths(tasks_dir: str, name: str) -> tuple[str, str]:
    """Return the status file and the log of one task."""
    if not NAME.fullmatch(name):
        raise ProcessError(
            f"{name!r} cannot name a task.",
            expected="lower-case letters, digits, dots and dashes, 63 at most",
            found=name,
            where=tasks_dir,
            fix="Rename the task.",
        )
    return os.path.join(tasks_dir, f"{name}.json"), os.path.join(tasks_dir, f"{name}.log")


def names(tasks_dir: str) -> list[str]:
    """Return the names of all tasks that were ever started here."""
    try:
        entries = os.listdir(tasks_dir)
    except FileNotFoundError:
        return []
    found = (entry[: -len(".json")] for entry in entries if entry.endswith(".json"))
    return sorted(name for name in found if NAME.fullmatch(name))


def tail(log: str, lines: int) -> list[str]:
    """Return the last lines of a log."""
    text = end_of(log, 0, TAIL_BYTES)[0].decode("utf-8", "replace")
    return text.replace("\r", "\n").split("\n")[-lines - 1 :] if lines else []


def look(tasks_dir: str, name: str, log_lines: int = 0) -> dict[str, Any]:
    """Look at one task; its state is absent, running, done, failed or died."""
    path, log = paths(tasks_dir, name)
    status = read_json(path)
    if status is None:
        return {"name": name, "state": "absent", "progress": {}, "log": log, "log_tail": []}
    if status["state"] == "running" and not lives(status, "launcher"):
        restarted = status["boot_id"] != launcher.boot_id()
        status["state"] = "died"
        status["message"] = (
            "the host was restarted while it ran" if restarted else "it was killed while it ran"
        )
    with suppress(FileNotFoundError):
        status["log_size"] = os.path.getsize(log)
    shown = [line for line in tail(log, log_lines + 20) if line.strip()]
    return {**status, "log_tail": shown[-log_lines:] if log_lines else []}


def decide(found: Mapping[str, Any], digest: str, again: bool = False) -> tuple[bool, str]:
    """Choose whether a task is started, and say why."""
    state, same = found["state"], found.get("digest") == digest
    if state == "running":
        return not same, "it runs" if same else "it runs with an outdated request"
    if state == "done" and same:
        return again, "what it made is gone" if again else "it is done"
    if state == "done":
        return True, "what is wanted changed"
    if state == "absent":
        return True, "it was never started here"
    return True, f"it {state}: {found.get('message') or 'no reason was recorded'}"


@contextmanager
def locked(tasks_dir: str) -> Iterator[None]:
    """Let one module at a time start or stop tasks."""
    os.makedirs(tasks_dir, mode=0o755, exist_ok=True)
    with open(os.path.join(tasks_dir, ".lock"), "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def start(
    tasks_dir: str,
    name: str,
    work: Work,
    user: Optional[str] = None,
    digest: str = "",
    again: bool = False,
    check: bool = False,
) -> dict[str, Any]:
    """Start a task unless it runs or is done, and return at once.

    A task with the same digest that is done is not started again unless `again` says that what it
    made is gone. One that runs with another digest is stopped first.
    """
    if check:
        wanted, reason = decide(look(tasks_dir, name), digest, again)
        return {"changed": wanted, "reason": reason, "status": look(tasks_dir, name)}
    with locked(tasks_dir):
        wanted, reason = decide(look(tasks_dir, name), digest, again)
        if wanted:
            _end(tasks_dir, name)
            path, log = paths(tasks_dir, name)
            first = {"name": name, "digest": digest, "log": log, "user": user}
            _detach(lambda ready: keeper.keep(path, first, work, ready))
        return {"changed": wanted, "reason": reason, "status": look(tasks_dir, name)}


def stop(tasks_dir: str, name: str, check: bool = False) -> bool:
    """Stop a task, wait until nothing of it is left, and tell whether there was something to do."""
    running = bool(look(tasks_dir, name)["state"] == "running")
    if running and not check:
        with locked(tasks_dir):
            _end(tasks_dir, name)
    return running


def _end(tasks_dir: str, name: str) -> None:
    path, _ = paths(tasks_dir, name)
    status = read_json(path) or {}
    if not status:
        return
    if lives(status, "launcher"):
        with suppress(ProcessLookupError):
            os.kill(status["launcher"]["pid"], signal.SIGTERM)
        until(lambda: not lives(status, "launcher"), STOP_SECONDS)
    left = kill_family(path, status, KILL_SECONDS)
    if left:
        raise ProcessError(
            f"The task {name} does not end: {len(left)} of its processes survive SIGKILL.",
            expected="no process left",
            found=sorted(left),
            where=path,
            fix="A process in state D waits for a device or a file system: see dmesg.",
        )


def _detach(body: Callable[[int], None]) -> None:
    """Run the body in a process that nothing on this connection can reach."""
    reader, writer = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            os.setsid()
            # The second fork gives up the session, so that no terminal can ever be acquired.
            if os.fork() == 0:
                body(writer)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(first, 0)
    with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
        answer = stream.read()
    if answer != keeper.READY:
        raise ProcessError(
            f"The task could not be started: {answer or 'its keeper was killed'}.",
            expected="a keeper that reports",
            found=answer or "nothing",
            fix="Check that the directory of tasks can be written to and that memory is free.",
        )
