"""Run processes under a supervisord of the cluster's own, without root.

supervisord only parents the launchers. What runs is known by record, so a process survives a
supervisord that died and is still found, stopped and counted.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import uuid
import xmlrpc.client
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from .. import launcher
from . import process
from .family import family, kill_family, lives, until
from .process import Files, Look, ProcessError
from .supervisord_daemon import PROGRAM, Daemon, escape, write_text

# From fork to the launcher's first report, on a machine that is busy.
START_SECONDS = 60.0
# What a launcher needs on top to kill and reap what ignored the signal.
REAP_SECONDS = 5.0
KILL_SECONDS = 30.0
# From the end of a process to the end of its launcher, on a machine that is busy.
TIDY_SECONDS = 30.0
# What supervisord answers of a name that it does not know.
BAD_NAME = 10
# A state of supervisord's: the process was not asked to end.
EXITED = 100


class Supervisord:
    """The processes of one cluster under its supervisord."""

    name = "supervisord"

    def __init__(self, cluster_dir: str, run_dir: str, python: str) -> None:
        self.daemon = Daemon(cluster_dir, run_dir, python)

    def look(self, files: Files, record: Optional[Mapping[str, Any]]) -> Look:
        """Look at one process without asking supervisord, so that a look costs milliseconds.

        But one that ended and is about to be started again runs: who stops it must stop that.
        """
        found = look(files, record)
        if found.running or record is None or not record.get("restart"):
            return found
        return replace(found, running=True, why="") if self.comes_back(files.name) else found

    def start(self, files: Files, record: Mapping[str, Any]) -> list[str]:
        """Start a process as recorded and wait until its command was executed."""
        self.check_user(record)
        self.daemon.ensure()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(files.state)
        process.save(files, {**record, "instance": uuid.uuid4().hex[:12]})
        self.write_program(files, record)
        self.launch(files.name)
        until(lambda: os.path.exists(files.state) or not self.held(files.name), START_SECONDS)
        state = process.read_json(files.state) or {"error": f"see {self.daemon.log}"}
        if state["error"]:
            raise ProcessError(
                f"{files.name} could not be started: {state['error']}.",
                expected=f"a program at {record['argv'][0]}",
                found=state["error"],
                where=files.record,
                command=shlex.join(record["argv"]),
                fix="Check that the program exists and that its user may run it.",
            )
        return list(state["lowered_limits"])

    @staticmethod
    def check_user(record: Mapping[str, Any]) -> None:
        """Refuse another user where only root could become it."""
        own = process.home_of(None)[0]
        if record["user"] not in (None, own) and os.geteuid() != 0:
            raise ProcessError(
                f"{record['name']} cannot run as {record['user']}: this needs root.",
                expected=f"user {own}, or none",
                found=record["user"],
                where=record["name"],
                fix="Leave user out, or connect as root.",
            )

    def write_program(self, files: Files, record: Mapping[str, Any]) -> None:
        """Render the program file of one process."""
        command = [self.daemon.python, "-I", self.daemon.launcher, files.record]
        text = PROGRAM.format(
            name=files.name,
            command=escape(shlex.join(command)),
            directory=escape(files.cluster_dir),
            stop_seconds=int(float(record["stop_timeout_seconds"]) + REAP_SECONDS),
            restart="unexpected" if record.get("restart") else "false",
            log=escape(os.path.join(files.cluster_dir, "logs", f"{files.name}.launcher.log")),
        )
        write_text(os.path.join(self.daemon.programs, f"{files.name}.conf"), text)

    def held(self, name: str) -> bool:
        """Tell whether supervisord counts this process as running; asking makes it reap."""
        try:
            return bool(self.daemon.server().getProcessInfo(name)["pid"])
        except (OSError, xmlrpc.client.Fault):
            return False

    def comes_back(self, name: str) -> bool:
        """Tell whether supervisord is about to start a process that failed."""
        try:
            info = self.daemon.server().getProcessInfo(name)
        except (OSError, xmlrpc.client.Fault):
            return False
        return bool(info["pid"] or (info["state"] == EXITED and info["exitstatus"]))

    def launch(self, name: str) -> None:
        """Let supervisord read the program file anew and start it."""
        until(lambda: not self.held(name), KILL_SECONDS)
        server, call = self.daemon.server(), self.daemon.call
        call(server.reloadConfig)
        with contextlib.suppress(xmlrpc.client.Fault):  # it is not known yet
            server.removeProcessGroup(name)
        call(server.addProcessGroup, name)
        call(server.startProcess, name, False)

    def stop(self, files: Files, record: Optional[Mapping[str, Any]], seconds: float) -> None:
        """Stop a process and wait until every descendant is gone."""
        if record is not None and record.get("restart") and self.daemon.answers():
            until(lambda: self.withdrawn(files.name), seconds + REAP_SECONDS)
        state = process.read_json(files.state) or {}
        if lives(state, "launcher"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["launcher"]["pid"], signal.SIGTERM)
            until(lambda: not lives(state, "launcher"), seconds + REAP_SECONDS)
        left = kill_family(files.record, state, KILL_SECONDS)
        if left:
            raise ProcessError(
                f"{files.name} does not end: {len(left)} of its processes survive SIGKILL.",
                expected="no process left",
                found=sorted(left),
                where=files.record,
                fix="A process in state D waits for a device or a file system: see dmesg.",
            )

    def withdrawn(self, name: str) -> bool:
        """Stop what supervisord would start again, and tell whether it does not know it any more.

        Between an end and the next start there is nothing to stop: only one forgotten stays away.
        """
        server = self.daemon.server()
        with contextlib.suppress(xmlrpc.client.Fault):
            server.stopProcess(name, False)
        try:
            server.removeProcessGroup(name)
        except xmlrpc.client.Fault as fault:
            return fault.faultCode == BAD_NAME
        return True

    def remove(self, files: Files) -> None:
        """Forget a stopped process, and end supervisord with the last one."""
        paths = (
            os.path.join(self.daemon.programs, f"{files.name}.conf"),
            os.path.join(files.cluster_dir, "logs", f"{files.name}.launcher.log"),
        )
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        if set(process.recorded_names(files.cluster_dir)) <= {files.name}:
            self.daemon.end()
        elif self.daemon.answers():
            until(lambda: not self.held(files.name), KILL_SECONDS)
            with contextlib.suppress(xmlrpc.client.Fault):
                self.daemon.server().removeProcessGroup(files.name)


def look(files: Files, record: Optional[Mapping[str, Any]]) -> Look:
    """Look at one launched process."""
    state = process.read_json(files.state) or {}
    if state.get("exit_status") is None and not lives(state, "launcher", "process"):
        # Its launcher first ends what the process has left, then writes how it ended.
        until(lambda: not lives(state, "launcher"), TIDY_SECONDS)
        state = process.read_json(files.state) or {}
    if lives(state, "launcher", "process"):
        return Look(True, state["process"]["pid"], state["instance"], state["started_at"])
    return Look(
        running=False,
        instance=state.get("instance"),
        started_at=state.get("started_at"),
        exit_status=state.get("exit_status"),
        ended_at=state.get("ended_at"),
        leftovers=tuple(sorted(family(files.record, state))),
        why=why(state, record),
    )


def why(state: Mapping[str, Any], record: Optional[Mapping[str, Any]]) -> str:
    """Say why a process does not run."""
    if record is None:
        return ""
    if record.get("stopped"):
        return process.STOPPED
    if state.get("exit_status") is not None:
        return f"it {process.ending(state['exit_status'])}"
    if state and state["boot_id"] != launcher.boot_id():
        return "the host was restarted since"
    return "it was killed" if state else "its last start was interrupted"
