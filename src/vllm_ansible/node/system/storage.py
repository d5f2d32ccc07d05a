"""The file systems under a cluster's directories: kind, options, room, and a real write."""

from __future__ import annotations

import os
import re
from typing import Any, Optional

from . import host, writing

# What other hosts share, by the kind that the kernel or a FUSE program gives.
NETWORK = re.compile(
    r"(nfs4?|cifs|smb3|lustre|gpfs|ceph|beegfs|wekafs|panfs|afs|9p|orangefs|pvfs2|glusterfs"
    r"|fuse\.(ceph|glusterfs|sshfs|juicefs|s3fs|rclone|goofys|gcsfuse|mount-s3|lustre|moosefs))"
)


def mounts(path: str = "/proc/self/mountinfo") -> list[dict[str, str]]:
    """Return mount point, kind and options of every mounted file system, in order of mounting."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as handle:
        for line in handle:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, kind = before.split(" "), after.split(" ")
            found.append(
                {
                    # The kernel writes white space and backslashes as octal numbers.
                    "point": re.sub(r"\\(\d{3})", lambda at: chr(int(at[1], 8)), fields[4]),
                    "kind": kind[0],
                    "source": kind[1],
                    "options": ",".join([fields[5], *kind[2:3]]),
                }
            )
    return found


def mount_of(path: str, mounted: list[dict[str, str]]) -> dict[str, str]:
    """Return the file system that a path lies on: the last one mounted nearest above it."""
    real = os.path.realpath(path)
    best: dict[str, str] = {"point": "", "kind": "", "source": "", "options": ""}
    for one in mounted:
        point = one["point"]
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best["point"]):
            best = one
    return best


def look(
    directories: dict[str, str], users: dict[str, Optional[str]], write: bool
) -> dict[str, dict[str, Any]]:
    """Return what is under each directory, by its purpose; sizes in bytes.

    A directory that is not there yet is judged by its nearest parent. users says for each purpose
    as whom a real write is tried, in directories that are there and if write says so; None is
    the calling user.
    """
    mounted = mounts()
    found = {}
    for purpose, path in directories.items():
        there = host.existing_parent(path)
        room = os.statvfs(there)
        mount = mount_of(there, mounted)
        found[purpose] = {
            "path": path,
            "there": there == path,
            **mount,
            "network": NETWORK.fullmatch(mount["kind"]) is not None,
            "size": room.f_blocks * room.f_frsize,
            "free": room.f_bavail * room.f_frsize,
            "inodes": room.f_files,
            "inodes_free": room.f_favail,
            "write": writing.tried(path, users[purpose])
            if write and there == path and purpose in users
            else None,
        }
    return found
