"""Hash a file while another program appends to it, so that peers get it before it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from .incoming import Incoming
from .manifest import PIECE, File
from .shelf import Shelf


class Follower:
    """One file that the hub's program writes, from its beginning to its end."""

    def __init__(self, shelf: Shelf, file: File, arrived: Callable[[Incoming], None]) -> None:
        """Keep of the file what is proven: from there on the program goes on."""
        self.file, self._arrived = file, arrived
        self.incoming = Incoming(shelf, file)
        with self.incoming:
            arrived(self.incoming)

    def look(self, written: bool) -> bool:
        """Take what is new; tell whether all of it is there, which a writer that ended makes sure.

        Peers get the last piece once the whole is what the hub has a digest of.
        """
        incoming, file = self.incoming, self.file
        with suppress(FileNotFoundError), open(self._path, "rb") as content:
            size = os.fstat(content.fileno()).st_size
            if size < incoming.size:
                # The server did not know ranges, and the program began anew.
                incoming.begin_anew()
            content.seek(incoming.size)
            while incoming.beginning.pieces < file.pieces:
                number = incoming.beginning.pieces
                length = file.length(number)
                if size < number * PIECE + length or (number + 1 == file.pieces and not written):
                    break
                piece = content.read(length)
                if len(piece) < length:
                    break
                incoming.prove(piece)
            self._arrived(incoming)
        return incoming.beginning.pieces == file.pieces

    def right(self) -> bool:
        """Remember a file that is what the hub says; remove any other."""
        incoming, path = self.incoming, self._path
        if incoming.beginning.right() and os.path.getsize(path) == self.file.bytes:
            incoming.shelf.add(self.file, path, incoming.beginning.sha256)
            return True
        incoming.begin_anew()
        os.unlink(path)
        return False

    @property
    def _path(self) -> str:
        """Where the program writes, or where it put what it wrote."""
        growing = self.incoming.path
        return growing if os.path.exists(growing) else self.incoming.shelf.fresh(self.file)


def adopt(shelf: Shelf, file: File, path: str, arrived: Callable[[Incoming], None]) -> bool:
    """Prove a file where it lies, for peers too; one that is wrong is removed from its place."""
    incoming = Incoming(shelf, file)
    shelf.forget(file)
    incoming.begin_anew()
    with open(path, "rb") as content:
        while incoming.beginning.pieces < file.pieces:
            piece = content.read(file.length(incoming.beginning.pieces))
            incoming.prove(piece)
            arrived(incoming)
    if incoming.beginning.right():
        shelf.add(file, path, incoming.beginning.sha256)
        return True
    incoming.begin_anew()
    os.unlink(path)
    return False
