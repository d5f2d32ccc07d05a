"""Whether a disk of this host can hold the cache."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ..system import host
from ..system.storage import NETWORK, mount_of, mounts


def look(directory: str) -> dict[str, Any]:
    """Return size and free bytes of the disk under a directory, and what keeps it from caching.

    attributes is empty, or why the file system keeps no extended attributes of users; used tells
    whether a cache is there already, which keeps the room by itself.
    """
    there = host.existing_parent(directory)
    room = os.statvfs(there)
    mount = mount_of(there, mounts())
    return {
        "directory": directory,
        "disk": mount["point"],
        "kind": mount["kind"],
        "network": NETWORK.fullmatch(mount["kind"]) is not None,
        "size": room.f_blocks * room.f_frsize,
        "free": room.f_bavail * room.f_frsize,
        "attributes": attributes_refused(there),
        # The daemon makes both (cachefilesd.conf(5) leaves them unnamed).
        "used": os.path.isdir(os.path.join(directory, "cache")),
    }


def attributes_refused(directory: str) -> str:
    """Return why no extended attribute of a user can be kept there; empty where one was."""
    try:
        with tempfile.TemporaryFile(dir=directory) as handle:
            os.setxattr(handle.fileno(), "user.vllm_ansible", b"1")
    except OSError as error:
        return error.strerror or str(error)
    return ""
