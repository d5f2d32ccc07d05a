"""Give what `sudo make lab` wrote to the person who typed it, who runs the playbooks."""

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path

from .inventory import inventory_file
from .paths import REPOSITORY, LabPaths


def hand_over(
    paths: LabPaths,
    environment: Mapping[str, str],
    root: Path = REPOSITORY,
    chown: Callable[[Path, int, int], None] = os.lchown,
) -> str:
    """Return who reads the inventory and the key from now on; empty where root typed it itself.

    The directories too: keys of clusters come to lie beside them.
    """
    try:
        uid, gid = int(environment["SUDO_UID"]), int(environment["SUDO_GID"])
        name = pwd.getpwuid(uid).pw_name
    except (KeyError, ValueError):
        return ""
    if uid == 0:
        return ""
    own = [paths.key, paths.key.with_name(f"{paths.key.name}.pub"), paths.known_hosts]
    above = [one for one in (paths.state, *paths.state.parents) if one.is_relative_to(root)]
    for path in (*own, inventory_file(paths), *(one for one in above if one != root)):
        if path.exists():
            chown(path, uid, gid)
    return name
