"""Where the parts of a model lie on this host, and which files of it are known to be right.

What arrives grows where the hub's program would go on with it, and in the store lies a proof of
each piece; a file that was verified stays in the directory `.partial`, and a model whose files are
all there gets its name. What was verified is remembered with size, time and inode, so that knowing
it again costs one look a file.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Callable, Optional

from .manifest import File, Manifest

STORE = ".store"
# Of the hub's library, which goes by it where a local directory is filled.
GROWING = ".cache/huggingface/download"
DIGEST_BYTES = 32
WAIT_SECONDS = 0.5


class Proofs:
    """The digests of a file's beginnings, one for each piece that is there and right."""

    def __init__(self, path: str) -> None:
        self.path = path

    def count(self) -> int:
        """Return how many pieces are there."""
        try:
            return os.path.getsize(self.path) // DIGEST_BYTES
        except FileNotFoundError:
            return 0

    def read(self, number: int) -> bytes:
        """Return the proof of a piece; nothing where it was withdrawn."""
        try:
            with open(self.path, "rb") as proofs:
                proofs.seek(number * DIGEST_BYTES)
                return proofs.read(DIGEST_BYTES)
        except FileNotFoundError:
            return b""

    def append(self, digest: bytes) -> None:
        """Say that one more piece is there."""
        with open(self.path, "ab") as proofs:
            proofs.write(digest)

    def cut(self, count: int) -> None:
        """Say that no piece is there but the first ones."""
        with suppress(FileNotFoundError):
            os.truncate(self.path, count * DIGEST_BYTES)


class Shelf:
    """One model on this host."""

    def __init__(self, models_dir: str, slug: str) -> None:
        self.place = models_dir
        self.final = os.path.join(models_dir, slug)
        self.partial = f"{self.final}.partial"
        self.store = os.path.join(models_dir, STORE, slug)
        self._stock = os.path.join(self.store, "stock.json")
        self._lock_path = os.path.join(self.store, "lock")
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make its directories."""
        for one in (os.path.join(self.store, "proofs"), self.partial):
            os.makedirs(one, exist_ok=True)

    @contextmanager
    def tend(self, waits: Callable[[], None]) -> Iterator[None]:
        """Be the only one who changes it, on every host that sees it; call waits till then."""
        self.prepare()
        with open(self._lock_path, "a", encoding="utf-8") as handle:
            while not _locked(handle):
                waits()
                time.sleep(WAIT_SECONDS)
            self._ask_anew()
            yield

    def tended(self) -> bool:
        """Tell whether somebody is putting it together."""
        with suppress(FileNotFoundError), open(self._lock_path, encoding="utf-8") as handle:
            return not _locked(handle, fcntl.LOCK_SH)
        return False

    def incoming(self, file: File) -> str:
        """Return where a file grows."""
        return os.path.join(self.partial, GROWING, f"{file.name}.{file.sha256 or file.git}.part")

    def proofs(self, file: File) -> Proofs:
        """Return the proofs of its pieces."""
        return Proofs(os.path.join(self.store, "proofs", file.key))

    def fresh(self, file: File) -> str:
        """Return where a file lies that came whole."""
        return os.path.join(self.partial, file.name)

    def source(self, file: File) -> str:
        """Return where the bytes are that its proofs are of."""
        growing = self.incoming(file)
        here = self.whole(file) or (growing if os.path.exists(growing) else self.unproven(file))
        return here or growing

    def _places(self, file: File) -> tuple[str, str]:
        return self.fresh(file), os.path.join(self.final, file.name)

    def stock(self) -> dict[str, dict[str, Any]]:
        """Return what was verified, by file."""
        if not os.path.exists(self._stock):
            self._ask_anew()
        try:
            with open(self._stock, encoding="utf-8") as stock:
                return dict(json.load(stock))
        except (OSError, ValueError):
            return {}

    def whole(self, file: File, stock: Optional[Mapping[str, Any]] = None) -> Optional[str]:
        """Return where the file lies if it is the verified one, and as it was then."""
        known = (self.stock() if stock is None else stock).get(file.name)
        if not known or known["mark"] != [file.bytes, file.sha256, file.git]:
            return None
        if not any(map(os.path.exists, self._places(file))):
            self._ask_anew()
        for path in self._places(file):
            with suppress(OSError):
                if _shape(path) == known["shape"]:
                    return path
        return None

    def ready(self, file: File, stock: Optional[Mapping[str, Any]] = None) -> bool:
        """Tell whether the file is verified and can be passed on."""
        return bool(self.whole(file, stock)) and self.proofs(file).count() == file.pieces

    def unproven(self, file: File) -> Optional[str]:
        """Return where a whole file of the right length lies, verified or not."""
        for path in self._places(file):
            with suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) == file.bytes:
                    return path
        return None

    def add(self, file: File, path: str, sha256: str) -> None:
        """Remember a file as verified, and move it among the whole ones."""
        if path not in self._places(file):
            os.makedirs(os.path.dirname(self.fresh(file)), exist_ok=True)
            os.replace(path, self.fresh(file))
            path = self.fresh(file)
        known = {
            "mark": [file.bytes, file.sha256, file.git],
            "shape": _shape(path),
            "sha256": sha256,
        }
        with self._lock:
            self._write({**self.stock(), file.name: known})

    def forget(self, file: File) -> None:
        """Remember a file as missing."""
        self._forget(file.name)

    def close(self, manifest: Manifest) -> None:
        """Give the model its name: every file is verified. A name it has already is kept.

        What was verified for a revision that no longer counts goes: shards of another name would
        stand beside those of this one.
        """
        for name in self.stock().keys() - {file.name for file in manifest.files}:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.final, name))
            self._forget(name)
        if not os.path.isdir(self.final):
            os.replace(self.partial, self.final)
        for file in manifest.files:
            fresh, place = self._places(file)
            if os.path.exists(fresh):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.replace(fresh, place)
        shutil.rmtree(self.partial, ignore_errors=True)
        shutil.rmtree(os.path.join(self.final, GROWING.partition("/")[0]), ignore_errors=True)

    def _ask_anew(self) -> None:
        """See what other hosts have put here since: for a minute, NFS remembers a name as missing.

        Who lists a directory asks the server.
        """
        for one in (self.store, self.partial, self.final):
            with suppress(OSError):
                os.listdir(one)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._write({one: known for one, known in self.stock().items() if one != name})

    def _write(self, stock: Mapping[str, Any]) -> None:
        """Keep the stock; a reader sees the old or the new one."""
        with open(f"{self._stock}.partial", "w", encoding="utf-8") as handle:
            json.dump(stock, handle)
        os.replace(f"{self._stock}.partial", self._stock)


def _locked(handle: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Tell whether a lock was free; it is held until the file is closed."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _shape(path: str) -> list[int]:
    """Return what changes when a file does: bytes, time in ns, inode."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino]
