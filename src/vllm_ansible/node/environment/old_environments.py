"""Environments of earlier digests: which of them nobody needs any more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..process import process
from ..process.in_use import users_of
from . import build as environment
from . import image_mount


def removable(cluster_dir: str, digest: str) -> list[Path]:
    """Return the environments that may go, as far as files tell; one look at a directory if none.

    Those stay that the digest names, that a recorded process starts from, and the newest other
    one, to which a change may be taken back without building it again.
    """
    wanted = environment.directory(cluster_dir, digest)
    try:
        others = [
            place
            for place in wanted.parent.iterdir()
            if place != wanted and place.is_dir() and not place.is_symlink()
        ]
    except OSError:
        return []
    if len(others) < 2:
        return []
    try:
        records = "".join(
            Path(process.Files(cluster_dir, name).record).read_text()
            for name in process.recorded_names(cluster_dir)
        )
    except OSError:
        return []  # a record that cannot be read may name any of them
    idle = [place for place in others if f"{place}/" not in records]
    return sorted(idle, key=_age)[1:]


def remove(places: list[Path]) -> list[Path]:
    """Remove environments with their locks, but for those that a process runs from.

    One that is a mounted image is unmounted, and stays where others have it.
    """
    used = users_of([str(place) for place in places])
    gone = [place for place in places if str(place) not in used]
    for place in gone:
        image_mount.unmount(place, os.environ)
        shutil.rmtree(place)
        lock = Path(f"{place}.txt")
        if lock.exists():
            lock.unlink()
    return gone


def _age(place: Path) -> float:
    """Return what sorts the newest first; one that was never completed is the oldest."""
    try:
        return -(place / environment.MANIFEST).stat().st_mtime
    except OSError:
        return 0.0
