"""One pass over a file's bytes: its digest at the end of each piece, and whether it is the hub's.

The digest of all bytes up to the end of a piece proves that piece and everything before it, and the
last one is the sha256 that the hub keeps. So a file is hashed once, whoever it comes from.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .manifest import File


class Beginning:
    """The digests of a file that is read from its beginning."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.pieces = 0
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)

    def after(self, piece: Any) -> bytes:
        """Return the digest of all up to the end of this piece, without taking it."""
        ahead = self._sha256.copy()
        ahead.update(piece)
        self._ahead = ahead
        return ahead.digest()

    def take(self, piece: Any) -> None:
        """Go on behind the piece that `after` was asked of last."""
        self._sha256 = self._ahead
        if not self.file.sha256:
            self._git.update(piece)
        self.pieces += 1

    @property
    def sha256(self) -> str:
        """The sha256 of what was taken."""
        return self._sha256.hexdigest()

    def right(self) -> bool:
        """Tell whether all that was taken is the file that the hub has; without a digest, never."""
        if self.file.sha256:
            return self.sha256 == self.file.sha256
        return self._git.hexdigest() == self.file.git
