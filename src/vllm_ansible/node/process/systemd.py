"""Run processes as systemd services, with root."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from .. import launcher
from . import process
from .process import Files, Look, ProcessError
from .supervisord_daemon import write_text

Run = Callable[[list[str]], tuple[int, str, str]]
PROPERTIES = ("LoadState", "ActiveState", "MainPID", "InvocationID", "ExecMainStatus", "Result")
KILLED = ("signal", "core-dump", "oom-kill", "watchdog")
RUNNING = ("active", "activating", "reloading", "deactivating")

UNIT = """\
# Written by vllm-ansible for {record}; changes made here are lost.
[Unit]
Description={name} of cluster {cluster} (vllm-ansible)
After=network-online.target
{unlimited}
[Service]
Type=exec
{user}WorkingDirectory={directory}
{environment}{before}ExecStart=:{command}
{after}StandardInput=null
StandardOutput=append:{log}
StandardError=append:{log}
Restart={restart}
KillMode=mixed
TimeoutStopSec={stop_seconds}
TasksMax=infinity
{limits}"""


def quote(value: str) -> str:
    """Quote one word for a unit file, where a percent sign starts a specifier."""
    special = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "%": "%%"}
    return '"' + "".join(special.get(letter, letter) for letter in value) + '"'


def render(record: Mapping[str, Any], record_path: str) -> str:
    """Render the whole unit of one record.

    The colon before the command switches off the expansion of dollar signs.
    """
    escaped = {
        key: str(record[key]).replace("%", "%%") for key in ("name", "cluster", "directory", "log")
    }
    pairs = sorted(record["full_environment"].items())
    limits = sorted(record["limits"].items())
    cleanup = " ".join(quote(argument) for argument in record.get("cleanup") or ())
    return UNIT.format(
        **escaped,
        record=record_path,
        user=f"User={record['user']}\n" if record["user"] else "User=root\n",
        environment="".join(f"Environment={quote(f'{key}={value}')}\n" for key, value in pairs),
        command=" ".join(quote(argument) for argument in record["argv"]),
        before=f"ExecStartPre=-:{cleanup}\n" if cleanup else "",
        after=f"ExecStopPost=-:{cleanup}\n" if cleanup else "",
        unlimited="StartLimitIntervalSec=0\n" if record.get("restart") else "",
        restart="on-failure\nRestartSec=1" if record.get("restart") else "no",
        stop_seconds=int(record["stop_timeout_seconds"]),
        limits="".join(f"Limit{name.upper()}={value}\n" for name, value in limits),
    )


def parse_show(text: str) -> list[dict[str, str]]:
    """Return one mapping for each unit that `systemctl show` printed."""
    blocks = (block.split("\n") for block in text.strip("\n").split("\n\n"))
    return [dict(line.split("=", 1) for line in block if "=" in line) for block in blocks]


class Systemd:
    """The processes of one cluster as systemd services."""

    name = "systemd"

    def __init__(self, cluster: str, unit_dir: str, run: Run) -> None:
        self.cluster = cluster
        self.unit_dir = unit_dir
        self.run = run

    def unit(self, name: str) -> str:
        """Return the name of the unit of one process."""
        return f"vllm-{self.cluster}-{name}.service"

    def path(self, name: str) -> str:
        """Return the path of the unit file of one process."""
        return os.path.join(self.unit_dir, self.unit(name))

    def systemctl(self, *arguments: str) -> str:
        """Run systemctl and return its output."""
        command = ["systemctl", *arguments]
        status, output, errors = self.run(command)
        if status != 0:
            raise ProcessError(
                f"{shlex.join(command)} failed: {errors.strip() or output.strip()}.",
                expected="exit status 0",
                found=f"exit status {status}",
                where=self.unit_dir,
                command=shlex.join(command),
                fix="See journalctl --unit of the unit named.",
            )
        return output

    def show(self, names: Iterable[str]) -> list[dict[str, str]]:
        """Return what systemd knows of these processes, in one call."""
        units = [self.unit(name) for name in names]
        if not units:
            return []
        return parse_show(self.systemctl("show", f"--property={','.join(PROPERTIES)}", *units))

    def look(self, files: Files, record: Optional[Mapping[str, Any]]) -> Look:
        """Look at one process."""
        return look(self.show([files.name])[0], record)

    def start(self, files: Files, record: Mapping[str, Any]) -> list[str]:
        """Start a process as recorded and wait until its command was executed."""
        self.check_owner(files)
        before = read_text(self.path(files.name))
        text = render(record, files.record)
        write_text(self.path(files.name), text)
        if before != text:
            self.systemctl("daemon-reload")
        process.save(files, {**record, "boot_id": launcher.boot_id()})
        with contextlib.suppress(ProcessError):  # a unit that never failed cannot be reset
            self.systemctl("reset-failed", self.unit(files.name))
        self.systemctl("start", self.unit(files.name))
        # A manager that may not raise a limit clamps it without a word.
        pid = self.look(files, record).pid
        return lowered(record["limits"], read_text(f"/proc/{pid}/limits") or "")

    def check_owner(self, files: Files) -> None:
        """Refuse a unit that was written for another record."""
        text = read_text(self.path(files.name))
        mark = f"# Written by vllm-ansible for {files.record};"
        if text is not None and not text.startswith(mark):
            raise ProcessError(
                f"The unit {self.unit(files.name)} belongs to something else.",
                expected=f"no unit, or one written for {files.record}",
                found=text.split("\n", 1)[0],
                where=self.path(files.name),
                fix="Rename the cluster or the engine, or remove that unit.",
            )

    def stop(self, files: Files, record: Optional[Mapping[str, Any]], seconds: float) -> None:
        """Stop a process; systemd waits until nothing of its control group is left."""
        self.check_owner(files)
        if self.look(files, record).running:
            self.systemctl("stop", self.unit(files.name))

    def remove(self, files: Files) -> None:
        """Forget a stopped process."""
        if read_text(self.path(files.name)) is None:
            return
        os.unlink(self.path(files.name))
        self.systemctl("daemon-reload")
        with contextlib.suppress(ProcessError):
            self.systemctl("reset-failed", self.unit(files.name))


def lowered(limits: Mapping[str, str], text: str) -> list[str]:
    """Return a sentence for each limit that a process has lower than it was given."""
    titles = {"nofile": "Max open files", "memlock": "Max locked memory"}
    found = {line[:26].strip(): line[26:47].strip() for line in text.splitlines()}
    sentences = []
    for name, wanted in sorted(limits.items()):
        has = found.get(titles[name], "unlimited")
        if has != "unlimited" and (wanted == "infinity" or int(has) < int(wanted)):
            sentences.append(
                f"limit {name} stays at {has}, {wanted} was wanted: not permitted here"
            )
    return sentences


def read_text(path: str) -> Optional[str]:
    """Return the content of a file, or None when there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return None


def look(shown: Mapping[str, str], record: Optional[Mapping[str, Any]]) -> Look:
    """Turn what systemd shows of one unit into a look."""
    known = record or {}
    running = shown.get("ActiveState") in RUNNING
    started = bool(shown.get("InvocationID"))
    status = int(shown.get("ExecMainStatus") or 0)
    if shown.get("Result") in KILLED:
        status += 128  # as a shell reports it; systemd gives the signal's bare number
    return Look(
        running=running,
        pid=int(shown.get("MainPID") or 0) or None,
        instance=shown.get("InvocationID") or None,
        started_at=known.get("recorded_at"),
        exit_status=None if running or not started else status,
        why="" if record is None else why(shown, known, status),
    )


def why(shown: Mapping[str, str], record: Mapping[str, Any], status: int) -> str:
    """Say why a recorded process does not run."""
    if record.get("stopped"):
        return process.STOPPED
    if record.get("boot_id") != launcher.boot_id():
        return "the host was restarted since"
    result = shown.get("Result", "success")
    extra = "" if result in ("success", "exit-code", "signal") else f": {result}"
    return f"it {process.ending(status)}{extra}"
