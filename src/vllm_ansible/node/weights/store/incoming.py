"""A file that grows on this host: what is on the disk is proven, and nothing else stays there."""

from __future__ import annotations

import os
from typing import IO, Any

from .hashing import Beginning
from .manifest import PIECE, File
from .shelf import Shelf


class PeerError(Exception):
    """A peer did not send what it should."""


class DiskError(Exception):
    """This host could not write, whoever sent; its first argument is the error itself."""


class Wrong(PeerError):
    """A piece is not what its digest says."""


class Withdrawn(PeerError):
    """What a peer had sent turned out to be wrong; it begins anew."""


class Incoming:
    """A file that grows on this host, with what was already there when it was opened."""

    def __init__(self, shelf: Shelf, file: File) -> None:
        self.shelf, self.file = shelf, file
        self.proofs = shelf.proofs(file)
        self.path = shelf.incoming(file)
        self.beginning = Beginning(file)
        self.doubted = False

    @property
    def size(self) -> int:
        """How many bytes are there and right."""
        return min(self.beginning.pieces * PIECE, self.file.bytes)

    def __enter__(self) -> Incoming:
        """Open it, and hash again what a run that ended early had proven."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self._content: IO[bytes] = open(self.path, "r+b" if os.path.exists(self.path) else "w+b")
        known = min(self.proofs.count(), self.file.pieces)
        for number in range(known):
            self._content.seek(number * PIECE)
            piece = self._content.read(self.file.length(number))
            if self.beginning.after(piece) != self.proofs.read(number):
                self.proofs.cut(number)
                break
            self.beginning.take(piece)
        return self

    def __exit__(self, *_: Any) -> None:
        """Leave on the disk what was proven, and no more."""
        if os.path.exists(self.path):
            self._content.truncate(self.size)
            if not self.beginning.pieces:
                os.unlink(self.path)
        self._content.close()

    def restart(self) -> None:
        """Begin anew: what was there is wrong."""
        self._content.truncate(0)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know nothing of the file any more, and take back what peers were told."""
        self.proofs.cut(0)
        self.beginning, self.doubted = Beginning(self.file), False

    def take(self, piece: memoryview, digest: bytes) -> None:
        """Write a piece, and say that it is there; the last one only when the whole is right."""
        if self.beginning.after(piece) != digest:
            raise Wrong(f"piece {self.beginning.pieces} is not what its digest says")
        try:
            self._content.seek(self.beginning.pieces * PIECE)
            self._content.write(piece)
            self._content.flush()
        except OSError as error:
            raise DiskError(error) from error
        self.beginning.take(piece)
        if self.beginning.pieces == self.file.pieces:
            if not self.beginning.right():
                self.restart()
                raise Withdrawn("the whole is not what the hub has")
            os.fsync(self._content.fileno())
        self.proofs.append(digest)

    def prove(self, piece: bytes) -> None:
        """Take a piece that lies on the disk; the last one counts only when the whole is right."""
        digest = self.beginning.after(piece)
        self.beginning.take(piece)
        if self.beginning.pieces < self.file.pieces or self.beginning.right():
            self.proofs.append(digest)

    def keep(self) -> None:
        """Put the file, which is right, among the whole ones."""
        self.shelf.add(self.file, self.path, self.beginning.sha256)
