"""What a long-lived process of ours is, and what must happen to it.

Everything here but the record files is pure, so the controller may use it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Protocol

from ..failure import Failure
from ..launcher import KEEP_ENVIRON_READABLE, MARKER, write_json

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SHARED = ".shared"
LOG_BYTES_BEFORE_ROTATION = 64 * 1024**2
# Why a process does not run that was stopped from here.
STOPPED = "it was stopped"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessError(Failure):
    """A process could not be brought to the wanted state."""


@dataclass(frozen=True)
class Spec:
    """The part of a process whose change means a restart."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    depends: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Optional[str]] = field(default_factory=dict)
    user: Optional[str] = None
    # Removes what is outside this process, such as a container: before its start, after its end.
    cleanup: tuple[str, ...] = ()
    # Started again by its supervisor when it fails; never an engine's, which start as a group.
    restart: bool = False


def spec(wanted: Mapping[str, Any]) -> Spec:
    """Return the specification in a mapping such as the parameters of managed_process."""
    environment = wanted.get("environment") or {}
    limits = wanted.get("limits") or {}
    return Spec(
        argv=tuple(str(argument) for argument in wanted["argv"]),
        environment={str(name): str(value) for name, value in environment.items()},
        depends=dict(wanted.get("depends") or {}),
        limits={name: str(value) for name, value in limits.items() if value is not None},
        user=wanted.get("user") or None,
        cleanup=tuple(str(argument) for argument in wanted.get("cleanup") or ()),
        restart=bool(wanted.get("restart")),
    )


def digest(wanted: Spec) -> str:
    """Return the digest of a specification: the same on the controller and on the host."""
    later = ("cleanup", "restart")  # processes of before these existed stay what they were
    parts = {name: value for name, value in asdict(wanted).items() if value or name not in later}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= 160 else text[:160] + "..."


def changes(old: Spec, new: Spec) -> list[str]:
    """Name each difference between two specifications."""
    found = []
    if old.argv != new.argv:
        gone = [part for part in old.argv if part not in new.argv]
        come = [part for part in new.argv if part not in old.argv]
        left, right = (gone, come) if gone or come else (list(old.argv), list(new.argv))
        found.append(f"argv: {shlex.join(left) or 'nothing'} -> {shlex.join(right) or 'nothing'}")
    for kind in ("environment", "depends", "limits"):
        before, after = dict(getattr(old, kind)), dict(getattr(new, kind))
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                was, wanted = (_shown(side.get(name, "unset")) for side in (before, after))
                found.append(f"{kind} {name}: {was} -> {wanted}")
    if old.user != new.user:
        found.append(f"user: {old.user or 'unset'} -> {new.user or 'unset'}")
    return found


@dataclass(frozen=True)
class Look:
    """What one look at a recorded process found."""

    running: bool
    pid: Optional[int] = None
    instance: Optional[str] = None
    started_at: Optional[float] = None
    exit_status: Optional[int] = None
    ended_at: Optional[float] = None
    # Processes of an earlier start that outlived their supervisor.
    leftovers: tuple[int, ...] = ()
    why: str = ""


def ending(status: int) -> str:
    """Say how a process ended, from the exit status that a shell would report."""
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        return f"ended with exit status {status}"
    return f"was killed by signal {status - 128} ({name})"


def told(name: str, why: str) -> str:
    """Say of a process by its name why a look found it not running."""
    if why.startswith("it "):
        return f"{name}{why[len('it') :]}"
    return f"{name} does not run: {why}" if why else f"{name} does not run"


@dataclass(frozen=True)
class Decision:
    """What to do, why, and whether it was refused."""

    action: str
    reason: str
    changes: tuple[str, ...] = ()
    refused: bool = False


def decide(
    look: Look, old: Optional[Spec], new: Optional[Spec], state: str, allow_restart: bool
) -> Decision:
    """Choose the one action that leads from what is there to what is wanted."""
    if state != "started":
        anything = look.running or bool(look.leftovers)
        if state == "absent" and (old is not None or anything):
            return Decision("remove", "it is recorded here" if old is not None else "it still runs")
        if anything:
            left = f"{len(look.leftovers)} processes of an earlier start are left"
            return Decision("stop", "it runs" if look.running else left)
        return Decision("none", "it does not run" if old is not None else "it was never started")
    if new is None:
        raise ProcessError("A process to start needs its argv.", fix="Give argv.")
    differences = () if old is None else tuple(changes(old, new))
    if not look.running:
        return Decision("start", look.why or "it was never started here", differences)
    if old is None:
        differences = ("its record is gone",)
    if not differences:
        return Decision("none", "it runs as wanted")
    reason = "; ".join(differences)
    return Decision("restart", reason, differences, refused=not allow_restart)


@dataclass(frozen=True)
class Files:
    """Where one process keeps its record, state and log."""

    cluster_dir: str
    name: str

    @property
    def directory(self) -> str:
        """Return the directory of all records."""
        return os.path.join(self.cluster_dir, "processes")

    @property
    def record(self) -> str:
        """Return the path of what was asked for."""
        return os.path.join(self.directory, f"{self.name}.json")

    @property
    def state(self) -> str:
        """Return the path of what the launcher reports."""
        return os.path.join(self.directory, f"{self.name}.state.json")

    @property
    def shared(self) -> str:
        """Return the path at which the launcher notes the shared memory of the process."""
        return f"{self.state}{SHARED}"

    @property
    def log(self) -> str:
        """Return the path of the log."""
        return os.path.join(self.cluster_dir, "logs", f"{self.name}.log")


def read_json(path: str) -> Optional[dict[str, Any]]:
    """Return the object in a file, or None when the file does not exist or holds nothing.

    A host that lost its power may leave it empty, or with zeros alone: what it was to describe
    ended with the power.
    """
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read().strip(" \t\r\n\0")
        if not text:
            return None
        content: dict[str, Any] = json.loads(text)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ProcessError(
            f"{path} is not valid JSON: {error}.",
            where=path,
            fix="Stop the process it describes by hand, then delete the file.",
        ) from error
    return content


def recorded_names(cluster_dir: str) -> list[str]:
    """Return the names of all recorded processes of a cluster."""
    try:
        entries = os.listdir(os.path.join(cluster_dir, "processes"))
    except FileNotFoundError:
        return []
    names = (entry[: -len(".json")] for entry in entries if entry.endswith(".json"))
    return sorted(name for name in names if NAME.fullmatch(name) and not name.endswith(".state"))


def empty_records(cluster_dir: str) -> list[str]:
    """Return the paths of records that hold nothing."""
    paths = [Files(cluster_dir, name).record for name in recorded_names(cluster_dir)]
    return [path for path in paths if os.path.exists(path) and read_json(path) is None]


def shared_notes(cluster_dir: str) -> list[str]:
    """Return the notes on shared memory of all processes of a cluster, also of forgotten ones."""
    directory = os.path.join(cluster_dir, "processes")
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(SHARED)
        )
    return []


def home_of(user: Optional[str]) -> tuple[str, str]:
    """Return the name and home of the user a process runs as."""
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    except KeyError:
        if user:
            raise ProcessError(
                f"The user {user} does not exist on this host.", fix="Create it, or name another."
            ) from None
        # Containers run with numbers that no password file knows.
        return str(os.geteuid()), os.environ.get("HOME", "/tmp")  # noqa: S108 the last resort
    return entry.pw_name, entry.pw_dir


def full_environment(wanted: Spec, files: Files) -> dict[str, str]:
    """Return the whole environment of a process: a small base, our marker, and what was asked."""
    name, home = home_of(wanted.user)
    base = {"PATH": PATH, "HOME": home, "USER": name, "LOGNAME": name, "LANG": "C.UTF-8"}
    return {**base, **KEEP_ENVIRON_READABLE, MARKER: files.record, **wanted.environment}


def rotate(log: str) -> int:
    """Keep one earlier log when this one has grown large; return where the next start begins."""
    os.makedirs(os.path.dirname(log), mode=0o755, exist_ok=True)
    try:
        size = os.path.getsize(log)
    except FileNotFoundError:
        return 0
    if size > LOG_BYTES_BEFORE_ROTATION:
        os.replace(log, f"{log}.1")
        return 0
    return size


class Supervisor(Protocol):
    """What keeps processes running after the module has gone."""

    name: str

    def look(self, files: Files, record: Optional[Mapping[str, Any]]) -> Look:
        """Look at one process."""

    def start(self, files: Files, record: Mapping[str, Any]) -> list[str]:
        """Start a process as recorded and return warnings."""

    def stop(self, files: Files, record: Optional[Mapping[str, Any]], seconds: float) -> None:
        """Stop a process and wait until nothing of it is left."""

    def remove(self, files: Files) -> None:
        """Forget a stopped process."""


def new_record(
    wanted: Spec, files: Files, labels: Mapping[str, Any], supervisor: str
) -> dict[str, Any]:
    """Return the record of a start that is about to happen."""
    return {
        **labels,
        **asdict(wanted),
        "version": 1,
        "name": files.name,
        "digest": digest(wanted),
        "supervisor": supervisor,
        "directory": files.cluster_dir,
        "full_environment": full_environment(wanted, files),
        "log": files.log,
        "log_offset": rotate(files.log),
        "state_path": files.state,
        "recorded_at": time.time(),
    }


@contextlib.contextmanager
def locked(cluster_dir: str) -> Iterator[None]:
    """Let one module at a time act on the processes of a cluster on this host."""
    directory = os.path.join(cluster_dir, "processes")
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def save(files: Files, record: Mapping[str, Any]) -> None:
    """Write a record that only its owner may read, and that is there after a power failure."""
    write_json(files.record, dict(record), mode=0o600, lasting=True)
