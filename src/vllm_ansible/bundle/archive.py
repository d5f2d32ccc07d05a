"""Write files into one tar, or into parts of it, so that the same files give the same bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

# Zip files, and so wheels, know no time before 1980.
MADE_AT = 315_619_200
READ, RUN = 0o644, 0o755


class Parts(io.RawIOBase):
    """A stream that is written into FILE.000, FILE.001 and so on, or into FILE where size is 0."""

    def __init__(self, file: Path, size: int) -> None:
        self._file, self._size = file, size
        self._open: BinaryIO | None = None
        self._room = 0
        self.written: list[Path] = []

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def write(self, content: object) -> int:
        """Write all of it, over as many parts as it takes."""
        left = memoryview(content)  # type: ignore[arg-type]
        length = len(left)
        while left:
            stream = self._stream()
            piece = left[: self._room] if self._size else left
            stream.write(piece)
            self._room -= len(piece)
            left = left[len(piece) :]
        return length

    def _stream(self) -> BinaryIO:
        if self._open is None or (self._size and not self._room):
            if self._open is not None:
                self._open.close()
            number = f".{len(self.written):03}" if self._size else ""
            self.written.append(self._file.with_name(f"{self._file.name}{number}.partial"))
            self._open, self._room = self.written[-1].open("wb"), self._size
        return self._open

    def finish(self) -> list[Path]:
        """Close, give each part its name now that all are whole, and return them."""
        if self._open is not None:
            self._open.close()
        return [part.rename(part.with_suffix("")) for part in self.written]


def pack(to: Path, folder: str, files: Mapping[str, Path | bytes], part_bytes: int) -> list[Path]:
    """Pack files below a folder, in the order that is given, and return what was written."""
    for earlier in to.parent.glob(f"{to.name}.[0-9][0-9][0-9]*"):
        earlier.unlink()
    parts = Parts(to, part_bytes)
    with tarfile.open(fileobj=parts, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, source in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.mtime = MADE_AT
            if isinstance(source, bytes):
                entry.size, entry.mode = len(source), RUN if name == "start" else READ
                archive.addfile(entry, io.BytesIO(source))
            elif source.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, str(source.readlink())
                archive.addfile(entry)
            else:
                status = source.stat()
                entry.size, entry.mode = status.st_size, RUN if status.st_mode & 0o100 else READ
                with source.open("rb") as content:
                    archive.addfile(entry, content)
    return parts.finish()
