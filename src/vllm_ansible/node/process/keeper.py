"""The detached process that runs one background task and writes its status."""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Optional

from .. import launcher

READY = "ready"
# A status is written this often at most: it may lie on a slow disk and is read every few seconds.
WRITE_SECONDS = 0.5
LOOK_SECONDS = 0.5
LAST_LINE_BYTES = 2048
STOP_SECONDS = 10.0
# A container's tool ends before conmon has removed the container; killed, it never would.
LEAVE_SECONDS = 5.0
LEAVE_LOOK_SECONDS = 0.05
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}


def _removes_a_container() -> bool:
    """Tell whether conmon, which removes a container that has ended, still runs below here."""
    for pid in launcher.descendants({os.getpid()}, launcher.process_table()):
        with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as name:
            if name.read().strip() == "conmon":
                return True
    return False


def keep(path: str, first: dict[str, Any], work: Any, ready: int) -> None:
    """Become the keeper: run the work, write its status, end with it."""
    try:
        log = os.open(first["log"], os.O_RDWR | os.O_TRUNC | os.O_CREAT | os.O_APPEND, 0o600)
        _leave(log, ready)
        launcher.become_subreaper()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        reader, writer = os.pipe()
        worker = _fork(path, first["user"], work, writer, unwanted=(reader, ready))
        os.close(writer)
        status = {
            **first,
            "state": "running",
            "pid": os.getpid(),
            "boot_id": launcher.boot_id(),
            "launcher": launcher.identity(os.getpid()),
            "process": launcher.identity(worker),
            "started": time.time(),
            "progress": {"done": None, "total": None, "unit": "", "text": ""},
            "message": "",
            "result": None,
            "details": {},
        }
        keeper = Keeper(path, status, reader)
        keeper.write()
    except BaseException as error:
        os.write(ready, f"{type(error).__name__}: {error}".encode())
        return
    os.write(ready, READY.encode())
    os.close(ready)
    keeper.follow()


def _leave(log: int, ready: int) -> None:
    """Let go of every descriptor of the connection."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Counting up to the limit would take minutes where the limit is a billion.
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) != ready:
            with suppress(OSError):
                os.close(int(entry))
    os.chdir("/")


def _fork(path: str, user: Any, work: Any, writer: int, unwanted: tuple[int, ...]) -> int:
    """Start the worker, as its user, and return its number."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for descriptor in unwanted:
            os.close(descriptor)
        os.setsid()
        launcher.become(user)
        launcher.die_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        entry = pwd.getpwnam(user) if user else None
        if entry:
            os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
        os.environ.update({launcher.MARKER: path, **launcher.KEEP_ENVIRON_READABLE})
        _work(work, writer)
        status = 0
    except BaseException as error:
        with suppress(Exception):
            traceback.print_exc()
        details = dict(getattr(error, "details", {}))
        _send(writer, {"failed": str(error) or type(error).__name__, "details": details})
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _work(work: Any, writer: int) -> None:
    if not callable(work):
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not
            signal.signal(number, signal.SIG_DFL)
        if work.directory:
            os.chdir(work.directory)
        if work.umask is not None:
            os.umask(work.umask)
        environment = {**os.environ, **work.environment, **_secrets(work.secret_environment)}
        os.execvpe(work.argv[0], list(work.argv), environment)  # noqa: S606 argv, no shell

    def report(done: Any = None, total: Any = None, unit: str = "", text: str = "") -> None:
        _send(writer, {"progress": {"done": done, "total": total, "unit": unit, "text": text}})

    _send(writer, {"result": work(report)})


def _secrets(files: Mapping[str, str]) -> dict[str, str]:
    """Return the content of each file, which nothing but the work's environment ever holds."""
    found = {}
    for name, path in files.items():
        with open(path, encoding="utf-8") as handle:
            found[name] = handle.read().strip()
        if not found[name]:
            raise ValueError(f"{path}, which should hold {name}, is empty")
    return found


def _send(writer: int, message: dict[str, Any]) -> None:
    left = json.dumps(message, default=str).encode() + b"\n"
    while left:
        left = left[os.write(writer, left) :]


class Keeper:
    """The status of one task, kept until its worker ends."""

    def __init__(self, path: str, status: dict[str, Any], reader: int) -> None:
        self.path = path
        self.status = status
        self.worker: int = status["process"]["pid"]
        self.reader: Optional[int] = reader
        self.deadline: Optional[float] = None
        self.written = 0.0
        self.reported = False

    def write(self) -> None:
        """Write the status."""
        self.status["updated"] = time.time()
        self.written = time.monotonic()
        # A full disk must not end the work that may be about to make room.
        with suppress(OSError):
            launcher.write_json(self.path, self.status)

    def follow(self) -> None:
        """Read what the worker reports until it ends, then write how it ended."""
        rest, changed, status = b"", False, None
        while status is None:
            data = self.wait()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.take(json.loads(line))
            changed = bool(lines) or self.read_last_line() or changed
            if changed and time.monotonic() - self.written >= WRITE_SECONDS:
                self.write()
                changed = False
            # Everything it wrote has been read before its end counts.
            status = None if data else launcher.reap().get(self.worker)
        deadline = time.monotonic() + LEAVE_SECONDS
        while _removes_a_container() and time.monotonic() < deadline:
            signal.sigtimedwait({signal.SIGCHLD}, LEAVE_LOOK_SECONDS)
            launcher.reap()
        launcher.kill_descendants()
        self.finish(status)

    def wait(self) -> bytes:
        """Wait for a report, a signal or a moment, and return what was reported."""
        data = b""
        if self.reader is None:
            received = signal.sigtimedwait(SIGNALS, LOOK_SECONDS)
        else:
            if select.select([self.reader], [], [], LOOK_SECONDS)[0]:
                data = os.read(self.reader, 65536)
                if not data:  # it has ended, or became a program
                    os.close(self.reader)
                    self.reader = None
            received = signal.sigtimedwait({signal.SIGTERM}, 0)
        if received is not None and received.si_signo == signal.SIGTERM:
            self.stop()
        if self.deadline is not None and time.monotonic() > self.deadline:
            launcher.kill_all({self.worker})
        return data

    def stop(self) -> None:
        """Ask the worker to end; what it started ends with it."""
        self.status.update(state="failed", message="it was stopped")
        self.deadline = time.monotonic() + STOP_SECONDS
        with suppress(ProcessLookupError):
            os.kill(self.worker, signal.SIGTERM)

    def take(self, message: dict[str, Any]) -> None:
        """Take one report of the worker."""
        if "progress" in message:
            self.reported = True
            self.status["progress"] = message["progress"]
        elif "failed" in message:
            self.status.update(message=message["failed"], details=message["details"])
        else:
            self.status["result"] = message["result"]

    def read_last_line(self) -> bool:
        """Take the last line of the log as progress when the work reports none."""
        if self.reported:
            return False
        size = os.fstat(1).st_size
        data = os.pread(1, LAST_LINE_BYTES, max(0, size - LAST_LINE_BYTES))
        lines = data.decode("utf-8", "replace").replace("\r", "\n").split("\n")
        text = next((line.strip() for line in reversed(lines) if line.strip()), "")
        changed: bool = text != self.status["progress"]["text"]
        self.status["progress"]["text"] = text
        return changed

    def finish(self, status: int) -> None:
        """Write how the work ended."""
        self.read_last_line()
        if self.status["state"] == "running":
            self.status["state"] = "failed" if status else "done"
        if status and not self.status["message"]:
            last = self.status["progress"]["text"]
            how = f"killed by signal {status - 128}" if status > 128 else f"exit status {status}"
            self.status["message"] = f"{how}: {last}" if last else how
        self.status.update(exit_status=status, ended=time.time())
        self.write()
