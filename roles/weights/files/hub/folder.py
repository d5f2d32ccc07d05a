"""The directory a model is fetched into: what of each file is there, and whether the rest fits."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from words import Failure, gib

NOTES = ".cache/huggingface/download"  # the library's own notes on a local directory
SPARE_INODES = 16


def size_of(path: Path) -> int:
    """Return the bytes of a file that are on the disk, 0 where there is none."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def bytes_under(directory: Path) -> int:
    """Return the bytes of a download of the library that are on the disk, without holes."""
    total = 0
    for path in directory.rglob("*.incomplete"):
        with suppress(FileNotFoundError):
            found = path.stat()
            total += min(found.st_size, found.st_blocks * 512)
    return total


class Folder:
    """One model at one commit, in one directory."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.model, self.commit = request["model"], request["revision"]
        self.directory = Path(request["directory"])
        self.sizes = {name: int(request["bytes"][name]) for name in request["files"]}
        self.aside: dict[str, Path] = {}  # where the library downloads a file for now
        for name in self.sizes:
            if {"..", ".", "", ".cache"} & set(name.split("/")):
                raise Failure(
                    f"{self.model} has a file that cannot be kept",
                    expected="a path inside the model's directory",
                    found=name,
                    where=f"{self.model} at {self.commit}",
                    fix="name another model, or leave that file out with weights_exclude",
                )

    def total(self) -> int:
        """Return the bytes of all wanted files."""
        return sum(self.sizes.values())

    def note(self, name: str) -> Path:
        """Return the library's note of what a whole file is: commit, hash and time, a line each."""
        return self.directory / NOTES / f"{name}.metadata"

    def part(self, name: str, etag: str) -> Path:
        """Return where the bytes of a file are until it is whole."""
        return self.directory / NOTES / f"{name}.{re.sub('[^0-9A-Za-z]', '_', etag)}.part"

    def parts(self, name: str) -> list[Path]:
        """Return the parts there are of a file, of this commit or another."""
        place, own = self.note(name).parent, Path(name).name
        return [path for path in place.glob("*.part") if path.name.rsplit(".", 2)[0] == own]

    def on_disk(self, name: str) -> int:
        """Return how many bytes of a file are on the disk."""
        size = size_of(self.directory / name)
        if size < self.sizes[name]:
            size = max([size, *map(size_of, self.parts(name))])
        aside = self.aside.get(name)
        if aside:
            size += bytes_under(aside)
        return min(size, self.sizes[name])

    def whole(self, name: str, etag: str = "") -> bool:
        """Return whether a file is there, of the right size and not noted as another's."""
        path = self.directory / name
        if not path.is_file() or size_of(path) != self.sizes[name]:
            return False
        try:
            commit, blob, *_ = self.note(name).read_text().splitlines()
        except (OSError, ValueError):
            return True  # whoever asked compares the hash
        return self.commit == commit or etag == blob

    def keep(self, name: str, path: Path, etag: str) -> None:
        """Give a whole file its name. The note comes first: it must not be another's."""
        target = self.directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path != target:
            with suppress(FileNotFoundError):
                target.unlink()
        self.note(name).parent.mkdir(parents=True, exist_ok=True)
        self.note(name).write_text(f"{self.commit}\n{etag}\n{time.time()}\n")
        os.replace(path, target)

    def preflight(self, missing: list[str]) -> None:
        """Refuse what does not fit, before a byte is fetched."""
        disk = os.statvfs(self.directory)
        needed = sum(self.sizes[name] - self.on_disk(name) for name in missing)
        free = disk.f_bavail * disk.f_frsize
        if needed > free:
            raise Failure(
                f"{self.model} does not fit on the disk",
                expected=f"{gib(needed)} free, for what is missing of {gib(self.total())}",
                found=f"{gib(free)} free",
                where=str(self.directory),
                fix="free some space, or set models_dir to a larger disk",
            )
        inodes = 3 * len(missing) + SPARE_INODES  # each file, its note and its part
        if disk.f_files and inodes > disk.f_favail:  # some file systems do not count them
            raise Failure(
                f"{self.model} has more files than the file system can take",
                expected=f"{inodes} inodes free, and {gib(needed)}",
                found=f"{disk.f_favail} inodes and {gib(free)} free",
                where=str(self.directory),
                fix="remove files that nobody needs, or set models_dir to another file system",
            )


def full_disk(error: Any, request: Mapping[str, Any]) -> Failure | None:
    """Return what to say of a disk that became full, None where an error is another."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    disk = os.statvfs(request["directory"])
    return Failure(
        f"the disk was full before {request['model']} was whole",
        expected="the space that was free when the download began",
        found=f"{gib(disk.f_bavail * disk.f_frsize)} and {disk.f_favail} inodes free",
        where=request["directory"],
        fix="free some space or raise the quota, and run the stage weights again: it goes on",
    )
