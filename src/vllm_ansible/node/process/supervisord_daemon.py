"""Start, ask and end the supervisord of one cluster on one host."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import signal
import socket
import stat
import subprocess
import xmlrpc.client
from collections.abc import Callable
from typing import Any

from .. import launcher
from . import process
from .family import until
from .process import ProcessError

ANSWER_SECONDS = 10.0
END_SECONDS = 30.0
UNIX_PATH_BYTES = 107

CONFIG = """\
[unix_http_server]
file = {socket}
chmod = 0700

[supervisord]
identifier = {cluster_dir}
logfile = {cluster_dir}/logs/supervisord.log
logfile_maxbytes = 1MB
logfile_backups = 1
pidfile = {run_dir}/supervisord.pid
childlogdir = {cluster_dir}/logs
directory = {cluster_dir}
minfds = 256
minprocs = 1
nodaemon = false
{user}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl = unix://{socket}

[include]
files = programs/*.conf
"""

PROGRAM = """\
[program:{name}]
command = {command}
directory = {directory}
autostart = false
autorestart = {restart}
startsecs = 0
startretries = 0
exitcodes = 0
stopwaitsecs = {stop_seconds}
stdout_logfile = NONE
stderr_logfile = {log}
stderr_logfile_maxbytes = 1MB
stderr_logfile_backups = 0
"""


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        """Return a connection to the socket, whatever the host is called."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(ANSWER_SECONDS)
        connection.sock.connect(self.path)
        return connection


def escape(value: str) -> str:
    """Escape what supervisord would expand in a configuration value."""
    return value.replace("%", "%%")


class Daemon:
    """The supervisord of one cluster on one host."""

    def __init__(self, cluster_dir: str, run_dir: str, python: str) -> None:
        self.cluster_dir = cluster_dir
        self.directory = os.path.join(cluster_dir, "processes")
        self.programs = os.path.join(self.directory, "programs")
        self.config = os.path.join(self.directory, "supervisord.conf")
        self.record = os.path.join(self.directory, ".supervisord")
        self.launcher = os.path.join(self.directory, "launcher.py")
        self.log = os.path.join(cluster_dir, "logs", "supervisord.log")
        self.run_dir = run_dir
        self.socket = os.path.join(run_dir, "supervisord.sock")
        self.python = python

    def server(self) -> Any:
        """Return the remote interface; connecting happens at each call."""
        transport = _Transport(self.socket)
        proxy = xmlrpc.client.ServerProxy("http://localhost/RPC2", transport=transport)
        return proxy.supervisor

    def answers(self) -> bool:
        """Tell whether our supervisord answers on its socket."""
        try:
            identifier = self.server().getIdentification()
        except (OSError, http.client.HTTPException):
            return False
        if identifier != self.cluster_dir:
            raise ProcessError(
                f"The supervisord at {self.socket} belongs to {identifier}.",
                expected=f"the supervisord of {self.cluster_dir}, or none",
                found=identifier,
                where=self.socket,
                fix="Give each cluster its own cluster_name.",
            )
        return True

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call supervisord and turn its refusal into our error."""
        try:
            return function(*arguments)
        except (xmlrpc.client.Fault, OSError, http.client.HTTPException) as error:
            raise ProcessError(
                f"supervisord refused a call: {error}.", where=self.socket, fix=f"See {self.log}."
            ) from error

    def ensure(self) -> None:
        """Start supervisord unless it answers."""
        self.check_run_dir()
        os.makedirs(self.programs, mode=0o755, exist_ok=True)
        os.makedirs(os.path.dirname(self.log), mode=0o755, exist_ok=True)
        write_text(self.launcher, launcher_source())
        if self.answers():
            return
        # One that lives but lost its socket can be replaced: what it started does not depend on it.
        self.kill_recorded()
        root = "user = root\n" if os.geteuid() == 0 else ""
        names = ("socket", "cluster_dir", "run_dir")
        values = {name: escape(getattr(self, name)) for name in names}
        write_text(self.config, CONFIG.format(**values, user=root))
        command = [self.python, "-m", "supervisor.supervisord", "-c", self.config]
        name, home = process.home_of(None)
        environment = {"PATH": process.PATH, "LANG": "C.UTF-8", "HOME": home, "USER": name}
        try:
            # It listens before it leaves the foreground: there is nothing to wait for afterwards.
            done = subprocess.run(  # noqa: S603 argv, no shell
                command,
                env=environment,
                cwd=self.cluster_dir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            output, status = done.stdout.strip(), done.returncode
        except OSError as error:
            output, status = str(error), 127
        if status != 0 or not self.answers():
            raise ProcessError(
                f"supervisord does not start: {output or 'it does not answer'}.",
                expected="a supervisord that answers on its socket",
                found=output or f"exit status {status}",
                where=self.socket,
                command=shlex.join(command),
                fix=f"See {self.log}; the Python named must have the package supervisor.",
            )
        pid = self.call(self.server().getPID)
        known = {**launcher.identity(pid), "boot_id": launcher.boot_id()}
        launcher.write_json(self.record, known, lasting=True)

    def check_run_dir(self) -> None:
        """Make the run directory, and refuse one that somebody else may write to."""
        if len(os.fsencode(self.socket)) > UNIX_PATH_BYTES - 8:  # supervisord appends its number
            raise ProcessError(
                f"The path of the socket {self.socket} is too long for a unix socket.",
                expected=f"at most {UNIX_PATH_BYTES - 8} bytes",
                found=len(os.fsencode(self.socket)),
                where=self.run_dir,
                fix="Shorten cluster_name.",
            )
        os.makedirs(self.run_dir, mode=0o700, exist_ok=True)
        found = os.lstat(self.run_dir)
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid != os.geteuid():
            raise ProcessError(
                f"{self.run_dir} is not a private directory of this user.",
                expected=f"a directory of user {os.geteuid()} with mode 0700",
                found=f"user {found.st_uid}, mode {stat.filemode(found.st_mode)}",
                where=self.run_dir,
                fix="Remove it after looking at what it holds.",
            )

    def recorded_alive(self) -> int:
        """Return the number of the recorded supervisord when it lives, else 0."""
        known = process.read_json(self.record) or {"boot_id": None}
        if known["boot_id"] != launcher.boot_id():
            return 0
        return known["pid"] if launcher.alive(known["pid"], known["start_time"]) else 0

    def kill_recorded(self) -> None:
        """Kill the supervisord that was recorded and wait until it is gone."""
        pid = self.recorded_alive()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: not self.recorded_alive(), END_SECONDS)

    def end(self) -> None:
        """End supervisord and remove every file that served it alone."""
        if self.answers():
            self.call(self.server().shutdown)
            until(lambda: not self.recorded_alive(), END_SECONDS)
        self.kill_recorded()
        pid_file = os.path.join(self.run_dir, "supervisord.pid")
        for path in (self.config, self.record, self.launcher, self.socket, pid_file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for directory in (self.programs, self.run_dir):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def write_text(path: str, text: str) -> None:
    """Write a file only when its content differs."""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as handle:
        if handle.read() == text:
            return
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(temporary, path)


def launcher_source() -> str:
    """Return the launcher's text, also when this package was imported from a zip file."""
    loader: Any = launcher.__spec__.loader if launcher.__spec__ else None
    source: str = loader.get_source(launcher.__name__)
    return source
