"""One look at everything that the role nfs_cache decides by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..kernel_files import text
from ..system.tool import Tools
from . import counters, kernel, place, room
from .fstab import in_fstab
from .mounts import mounted_at, read
from .users import users_of

PROGRAMS = ("mount.nfs", "cachefilesd", "exportfs")


def look(
    path: str, cache: str, serves: bool, fstab: str, load: bool, tools: Tools
) -> dict[str, Any]:
    """Return kernel, mount, disk and protection of a host.

    path is where to mount, cache the cache's directory or nothing, serves whether this host is the
    server; load lets the kernel load its modules.
    """
    mounted = mounted_at(path)
    return {
        "nfs": "" if serves else kernel.lacks("nfs", tools, load),
        "nfsd": kernel.lacks("nfsd", tools, load) if serves else "",
        "cache": kernel.lacks_cache(tools, load) if cache and not serves else "",
        "mount": mounted,
        "place": place.look(path, mounted is not None),
        "fstab": in_fstab(path, read(fstab)),
        "caches": counters.active_caches(read(counters.CACHES)),
        "bound": counters.caches_of(path),
        "users": users_of(path) if mounted else [],
        "room": room.look(cache) if cache and not serves else None,
        "selinux": Path("/sys/fs/selinux/enforce").exists(),
        "apparmor": confined("cachefilesd"),
        "programs": {name: tools.find(name) is not None for name in PROGRAMS},
    }


def confined(program: str, profiles: Path = Path("/sys/kernel/security/apparmor/profiles")) -> str:
    """Return the AppArmor profile, with its mode, that holds a program; empty for none."""
    for line in text(profiles).splitlines():
        name = line.rpartition(" (")[0]
        if name.rpartition("/")[2] == program:
            return line
    return ""
