"""Files that the controller keeps, for later runs, for other clusters and for new hosts."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class KeptError(Exception):
    """A file that arrived is not the one that was made."""


class KeptFiles:
    """A directory with one folder for each key: a file, and what is known of it.

    The record is written last, so a file without one is none; a wheel's is called as on hosts.
    """

    def __init__(self, root: Path, record: str = "wheel.json") -> None:
        self.root = root.expanduser()
        self.record = record

    def place(self, key: str) -> Path:
        """Return the folder of a key."""
        return self.root / key

    def look(self, key: str) -> tuple[dict[str, Any] | None, str]:
        """Return what is known of a file; or nothing, and what is wrong with what lies there.

        All of it is read: a damaged file would reach every host.
        """
        place = self.place(key)
        if not place.exists():
            return None, ""
        try:
            record: dict[str, Any] = json.loads((place / self.record).read_text())
            path = place / os.path.basename(record["file"])
            found = sha256(path)
            if record["key"] == key and found == record["sha256"]:
                return record, ""
            return None, f"{path} has the SHA-256 {found[:12]}, not {record['sha256'][:12]}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return None, f"{place} cannot be read: {error}"

    def keep(self, key: str, record: Mapping[str, Any], bring: Callable[[Path], None]) -> None:
        """Keep a file, which `bring` writes to the path it is given; replaces a damaged one."""
        self.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".new-") as directory:
            folder = Path(directory, "new")
            folder.mkdir()
            path = folder / os.path.basename(str(record["file"]))
            bring(path)
            found = sha256(path)
            if found != record["sha256"]:
                raise KeptError(f"SHA-256 {found[:12]} instead of {str(record['sha256'])[:12]}")
            (folder / self.record).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
            with self._locked():
                place = self.place(key)
                if place.exists():
                    shutil.rmtree(place)
                folder.rename(place)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one run at a time put something into its place."""
        with (self.root / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
