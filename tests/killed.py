"""Remove what killed runs of the tests have left: each run records what it makes, with its own pid.

A run has one file in `records`, named in the environment of all that it starts and removed at its
end. The next run finds the files of runs whose process is gone (pid, start time, boot), and removes
what those made: processes by the record they name, labs by root and name, directories and
containers by path, shared memory by device and inode. What a live run has made is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_ansible.lab import Lab, LabError
from vllm_ansible.node import launcher
from vllm_ansible.node.process.process import SHARED

# Not with ANSIBLE in it, which tests take out of environments, nor VLLM_, which vLLM judges.
MARK = "RECORD_OF_TEST_RUN"
SECONDS = 30.0
# Paths of a record: what a run keeps its files in, and where a cluster of it has its sockets.
KINDS = ("directory", "run_dir")


def registry() -> Path:
    """Return the directory of this user's records, which nobody else may write."""
    path = Path(tempfile.gettempdir(), f"vllm-test-runs-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RuntimeError(f"{path} is not a directory that this user alone may write: remove it")
    return path


def begin(records: Path) -> list[str]:
    """Remove what dead runs left, record this one, and return words on what was removed.

    Within a run that lives, as a worker of it does, nothing is done.
    """
    if (inherited := os.environ.get(MARK)) and lives(Path(inherited)):
        return []
    told = []
    with turn(records):
        for record in sorted(records.glob("*.jsonl")):
            if not lives(record):
                try:
                    told += remove(record)
                except (OSError, ValueError, RuntimeError, LabError) as error:
                    told.append(f"not all of {record}, which is kept: {error}")
        own = records / f"{uuid.uuid4().hex}.jsonl"
        os.environ[MARK] = str(own)
        remember(**identity())
    return told


def end() -> None:
    """Forget this run, whose own fixtures have removed what it made; a worker ends no run."""
    own = Path(os.environ.get(MARK, ""))
    lines = read(own)
    if lines and lines[0].get("pid") == os.getpid():
        own.unlink()
        del os.environ[MARK]


def identity() -> dict[str, Any]:
    """Return what tells this process from every other, of this boot and of others."""
    pids = os.readlink("/proc/self/ns/pid")
    return {**launcher.identity(os.getpid()), "boot": launcher.boot_id(), "pids": pids}


def remember(**what: Any) -> None:
    """Add a line to the record of this run, before the thing is made; by hand there is none."""
    if own := os.environ.get(MARK):
        with open(own, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(what) + "\n")


@contextlib.contextmanager
def turn(records: Path) -> Iterator[None]:
    """Let one run at a time remove and begin."""
    with open(records / "lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def read(record: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a record; the last one may have been cut."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, ValueError):
        for line in record.read_text().splitlines():
            found.append(json.loads(line))
    return found


def lives(record: Path) -> bool:
    """Tell whether the very process that began a run still runs, or may: where we cannot see it."""
    first, ours = next(iter(read(record)), {}), identity()
    if first.get("boot") != ours["boot"]:
        return False
    return first.get("pids") != ours["pids"] or launcher.alive(
        first.get("pid"), first.get("start_time")
    )


def remove(record: Path) -> list[str]:
    """Remove what a dead run has left, then its record."""
    lines = read(record)
    used = [one for other in record.parent.glob("*.jsonl") if lives(other) for one in read(other)]
    in_use = {line[kind] for line in used for kind in KINDS if kind in line}
    # A lab is the state of its root and name: the one that a live run names is that run's.
    labs_in_use = [line["lab"] for line in used if "lab" in line]
    named = {kind: [one[kind] for one in lines if kind in one] for kind in KINDS}
    places, sockets = (
        [one for one in dict.fromkeys(named[kind]) if one not in in_use] for kind in KINDS
    )
    told: list[str] = []
    labs: dict[str, Lab] = {}
    shared: set[tuple[str, int]] = set()
    # Last what keeps containers: it ends with them.
    told += end_processes(record, places, shared, sockets, keepers=False)
    for line in lines:
        if "lab" in line and line["lab"] not in labs_in_use:
            root, name = line["lab"]
            with contextlib.suppress(LabError):  # it was not made yet, or is removed
                labs[f"lab {name} of {root}"] = Lab.open(name, root=Path(root))
    for words, left in labs.items():
        left.down()
        told.append(words)
    told += remove_containers(places)
    told += end_processes(record, places, shared, sockets, keepers=True)
    told += remove_shared(shared, places)
    for path in [*dict.fromkeys(one for one in sockets if one not in in_use), *places]:
        told += remove_directory(Path(path))
    record.unlink()
    return told


def end_processes(
    record: Path,
    places: list[str],
    shared: set[tuple[str, int]],
    sockets: list[str],
    keepers: bool,
) -> list[str]:
    """Kill the processes of a run until none is left; note what they share, and their sockets."""
    told: dict[int, str] = {}
    deadline = time.monotonic() + SECONDS
    while found := [one for one in of_run(record, places) if keepers or name_of(one) != "conmon"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of a killed run do not end: {told}")
        shared |= launcher.mapped(found)
        for pid in found:
            told[pid] = f"process {pid} ({name_of(pid)})"
            sockets += run_dir_of(pid)
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    # Its number may have been given on since it was looked at.
                    if of_this_run(pid, record, places):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        time.sleep(0.05)
    return list(told.values())


def of_run(record: Path, places: list[str]) -> list[int]:
    """Return the living processes of a run."""
    return [
        pid
        for pid in launcher.process_table()
        if pid != os.getpid() and of_this_run(pid, record, places)
    ]


def of_this_run(pid: int, record: Path, places: list[str]) -> bool:
    """Tell whether a process names the run's record, or was started for one of its directories.

    Processes of a cluster get an environment of their own, which names their record; supervisord
    gets none of ours at all, and a configuration that belongs to the cluster.
    """
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    if os.fsencode(f"{MARK}={record}") in entries:
        return True
    starts = tuple(os.fsencode(f"{launcher.MARKER}={place}/") for place in places)
    if starts and any(entry.startswith(starts) for entry in entries):
        return True
    return any(configuration(pid).startswith(f"{place}/") for place in places)


def configuration(pid: int) -> str:
    """Return the configuration of a supervisord; nothing of any other process."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return words[words.index("-c", words.index("supervisor.supervisord")) + 1]
    return ""


def run_dir_of(pid: int) -> list[str]:
    """Return the directory of a supervisord's sockets, which its configuration names."""
    with contextlib.suppress(OSError):
        for line in Path(configuration(pid)).read_text().splitlines():
            if line.startswith("pidfile = "):
                return [str(Path(line.partition(" = ")[2]).parent)]
    return []


def name_of(pid: int) -> str:
    """Return the name of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "ended"


def remove_containers(places: list[str]) -> list[str]:
    """Remove containers that have a directory of the run mounted, by id."""
    if os.geteuid() != 0 or shutil.which("podman") is None or not places:
        return []
    listed = podman("ps", "--all", "--quiet", "--no-trunc").split()
    told = []
    for one in json.loads(podman("inspect", *listed) or "[]") if listed else []:
        sources = [str(mount.get("Source", "")) for mount in one.get("Mounts") or []]
        if any(source.startswith(f"{place}/") for source in sources for place in places):
            podman("rm", "--force", "--time", "0", one["Id"])
            told.append(f"container {one['Id'][:12]}")
    return told


def podman(*arguments: str) -> str:
    """Return what podman prints; a container may end while it is looked at."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


def remove_shared(shared: set[tuple[str, int]], places: list[str]) -> list[str]:
    """Remove shared memory that the run's processes had mapped or noted, and nobody has now."""
    noted = [
        one
        for place in places
        for path in Path(place).rglob(f"processes/*{SHARED}")
        for one in launcher.read_notes(str(path)).items()
    ]
    held = launcher.mapped(launcher.process_table())
    told = []
    for name, one in launcher.shared_files().items():
        ours = one[:2] in shared or (name, one) in noted
        if ours and one[:2] not in held:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(launcher.SHARED_DIR, name))
                told.append(f"shared memory {name}")
    return told


def remove_directory(path: Path) -> list[str]:
    """Remove a directory of this user, once nothing is mounted below it."""
    try:
        found = path.lstat()
    except OSError:
        return []
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return []
    for mount in mounts_below(path):
        subprocess.run(["umount", mount], capture_output=True, check=False)
    if mounts_below(path):
        return []
    shutil.rmtree(path, ignore_errors=True)
    return [f"directory {path}"]


def mounts_below(path: Path) -> list[str]:
    """Return what is mounted below a directory, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return sorted((one for one in points if one.startswith(f"{path}/")), reverse=True)
