"""One run at a time works on a cluster: who holds it is written on the cluster's head."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .. import launcher

Lock = dict[str, Any]
WAIT_SECONDS = 5.0
# By these a process number means the same to two runs. A process that another user, or another
# namespace, does not see may well run.
SIGHT = ("host", "boot_id", "uid", "namespace")
# What names a run's process; nothing here changes while it runs.
IDENTITY = ("user", *SIGHT, "pid", "start_time")
# The kernel's first namespace of process numbers: whoever runs in it runs in no container.
INITIAL = "pid:[4026531836]"
MACHINE_ID = Path("/etc/machine-id")
INTERFACES = Path("/sys/class/net")


def holder_of(pid: int, user: str) -> dict[str, Any]:
    """Return who holds a lock for the run of this process, and where that process can be seen."""
    return {
        "user": user,
        "uid": os.geteuid(),
        "host": socket.gethostname(),
        "boot_id": launcher.boot_id(),
        "namespace": _namespace(),
        "machine": _machine(),
        **launcher.identity(pid),
    }


def _machine() -> str:
    """Return what names this machine across reboots, or nothing where that is not certain.

    The ID alone may come from an image that several machines were made from, so the addresses of
    its network cards belong to it.
    """
    cards = []
    with suppress(OSError):
        for interface in sorted(INTERFACES.iterdir()):
            if (interface / "device").exists():
                cards.append((interface / "address").read_text().strip())
    with suppress(OSError):
        machine_id = MACHINE_ID.read_text().strip()
        if cards and machine_id:
            return hashlib.sha256(json.dumps([machine_id, cards]).encode()).hexdigest()[:32]
    return ""


def booted() -> float:
    """Return when this machine was booted, by its clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _namespace() -> str:
    """Return the namespaces of process numbers and of start times; nothing where none is told."""
    found = []
    for kind in ("pid", "time"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/ns/{kind}"))
    return " ".join(found)


def run_id(name: str, holder: Mapping[str, Any], chance: str) -> str:
    """Return what names one run alone: its name, and a mark of its process and of chance.

    Two runs may have the same name, as two that are recorded nowhere, on two machines.
    """
    identity = {name: holder.get(name) for name in IDENTITY}
    text = json.dumps([identity, chance], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def over(holder: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[bool, str]:
    """Tell whether a holder's run has ended, and if that cannot be known, why.

    here: what holder_of says of the asking run.
    """
    if _rebooted(holder, here):
        return True, ""
    reasons = {
        "host": "it is on another machine",
        "boot_id": "it is of another machine of this name, or of before a restart",
        "uid": "it is another user's, whose processes may be hidden",
        "namespace": "it is in another namespace of process numbers",
    }
    for name in SIGHT:
        if not holder.get(name) and holder.get(name) != 0:
            return False, f"it does not say its {name}"
        if holder[name] != here[name]:
            return False, reasons[name]
    # A /proc of another namespace, or one that hides: who does not see itself sees nobody.
    if not launcher.alive(here["pid"], here["start_time"]):
        return False, "/proc does not show the processes of this run"
    return not launcher.alive(holder.get("pid"), holder.get("start_time")), ""


@contextmanager
def kept_open(path: Path) -> Iterator[None]:
    """Hold the kernel's own lock on a cluster's lock, which ends with this process by itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        with suppress(OSError):  # a file system without such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def abandoned(path: Path, here: Mapping[str, Any]) -> bool:
    """Tell whether a restart's lock is of a process that has ended, in whatever namespace it ran.

    A container that is restarted has another namespace of process numbers, by which nothing can be
    known of the processes before. But it is the same kernel, and that holds a lock of its own.
    """
    holder = (read(path) or {}).get("holder") or {}
    if not holder.get("kept_open") or any(
        holder.get(name) != here[name] for name in ("host", "boot_id", "uid")
    ):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _rebooted(holder: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Tell whether the holder's machine is this one, rebooted since the lock was acquired.

    Another machine made from the same image may be up at the same time: it was booted before the
    lock was acquired, or has other network cards. Of a container nothing is certain.
    """
    if not holder.get("machine") or not holder.get("boot_id"):
        return False
    if any(holder.get(name) != here[name] for name in ("host", "machine")):
        return False
    spaces = [str(one.get("namespace") or "?").split()[0] for one in (holder, here)]
    if spaces != [INITIAL, INITIAL] or holder["boot_id"] == here["boot_id"]:
        return False
    acquired = holder.get("acquired")
    return isinstance(acquired, (int, float)) and acquired < booted()


def _wait_for(descriptor: int) -> None:
    """Lock a directory, but not for ever wait: everybody who may read it can keep it locked."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return
        else:
            return


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Look at a lock and change it while no other run on this head does.

    Where the file system locks no directories, as NFS, nothing but the first taking is exclusive.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # not made yet, or not ours to read: what follows says so
        yield
        return
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def read(path: Path) -> Lock | None:
    """Return the lock, or None when nobody holds it or what lies there is no lock."""
    try:
        lock = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return lock if isinstance(lock, dict) and "run" in lock else None


def verdict(held: Lock | None, run: str, dead_runs: list[str]) -> str:
    """Say whether `run` may take the lock: `free`, `mine`, `stale` or `held`.

    dead_runs are runs that the asking controller knows to be over, since it started them itself.
    Of a run on another controller nobody knows: a download may take hours, and silence proves
    nothing, so that lock is a person's to break.
    """
    if held is None:
        return "free"
    if held["run"] == run:
        return "mine"
    return "stale" if held["run"] in dead_runs else "held"


def write(path: Path, lock: Lock) -> None:
    """Put the lock in place whole, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=".lock-")
    with os.fdopen(handle, "w") as file:
        json.dump(lock, file)
    os.replace(name, str(path))


def take(path: Path, lock: Lock) -> bool:
    """Create the lock if none exists; False when somebody was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix=".lock-")
    with os.fdopen(handle, "w") as file:
        json.dump(lock, file)
    try:
        # A link fails when the name exists, on NFS too: exactly one of two runs gets it.
        os.link(name, str(path))
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True
