"""The processes of a cluster on this machine, found by what they were started with."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from .clone import wait_until


@dataclass(frozen=True)
class Process:
    """One process as /proc shows it; the start time tells it from a later one of its number."""

    pid: int
    started: str
    arguments: str
    environment: str


def look(pid: int) -> Process | None:
    """Return a process that runs, also a thread-less one; None when it is gone or a zombie."""
    place = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            arguments = (place / "cmdline").read_bytes().replace(b"\0", b" ")
            environment = (place / "environ").read_bytes().replace(b"\0", b"\n")
            return Process(
                pid, fields[19], arguments.decode(errors="replace"), environment.decode("latin-1")
            )
    return None


def everything() -> list[Process]:
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process]


def of_cluster(cluster_dir: Path) -> list[Process]:
    """Return the processes that run for a cluster: its directory is in what started them."""
    mark = f"{cluster_dir}/"
    return [
        process
        for process in everything()
        if mark in process.arguments or mark in process.environment
    ]


def identities(cluster_dir: Path) -> set[tuple[int, str]]:
    return {(process.pid, process.started) for process in of_cluster(cluster_dir)}


def untouched(cluster_dir: Path, before: set[tuple[int, str]]) -> None:
    """Hold a cluster to it: none of its processes is new, and all lives that its host recorded.

    Others may have ended by themselves, as a task does a moment after it was called done.
    """

    def new() -> list[str]:
        return [
            one.arguments for one in of_cluster(cluster_dir) if (one.pid, one.started) not in before
        ]

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not new(), 60, "end of what a run has started", every=0.5)
    assert new() == []
    states = [
        json.loads(path.read_text()) for path in (cluster_dir / "processes").glob("*.state.json")
    ]
    recorded = {(one["process"]["pid"], str(one["process"]["start_time"])) for one in states}
    assert recorded
    assert recorded <= identities(cluster_dir)


def end_all(cluster_dir: Path) -> None:
    """Kill what a failed test has left, each by its number."""

    def gone() -> bool:
        left = of_cluster(cluster_dir)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return not left

    wait_until(gone, 30, "end of the processes of a failed test")


def listeners(cluster_dir: Path) -> set[tuple[str, int]]:
    """Return address and port of every TCP socket on which the cluster's processes listen."""
    sockets = {}
    for table, width in (("/proc/net/tcp", 4), ("/proc/net/tcp6", 16)):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                address, _, port = fields[1].rpartition(":")
                # The kernel prints words of four bytes, each in the machine's own order.
                words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, width * 2, 8)]
                shown = ip_address(b"".join(words))
                plain = getattr(shown, "ipv4_mapped", None) or shown
                sockets[f"socket:[{fields[9]}]"] = (str(plain), int(port, 16))
    found = set()
    for process in of_cluster(cluster_dir):
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found |= (
                        {sockets[link]} if (link := os.readlink(descriptor)) in sockets else set()
                    )
    return found


def listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of all that lies under a directory; logs may grow."""
    found = {}
    for folder, folders, files in os.walk(directory):
        for name in [*folders, *files]:
            path = Path(folder, name)
            try:
                about = path.lstat()
            except FileNotFoundError:  # written anew beside us
                continue
            grows = stat.S_ISREG(about.st_mode) and path.suffix == ".log"
            figures = (0, 0) if grows else (about.st_size, about.st_mtime_ns)
            found[str(path.relative_to(directory))] = (about.st_mode, *figures)
    return found
