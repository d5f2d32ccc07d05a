"""Read logs, and the evidence beside them, from directories and files that somebody names."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from .. import events
from .encoding import as_utf8, kind_of
from .evidence import FACTS, KEPT, Evidence, of_directory
from .interleaved import taken_apart
from .long_log import Room, kept

_MIB = 1024 * 1024
# Of a longer log the head, the tail and the lines between them that are no routine are kept.
_ROOM = Room(head=_MIB, middle=2 * _MIB, tail=3 * _MIB)
# Of all logs together; many long ones share it.
_MOST_BYTES = 96 * _MIB
_MOST_FILES = 2000
# What lies in the directory of a run, in a bundle and on the head beside logs, and is none.
_NO_LOGS = frozenset(
    (events.FILE, KEPT, FACTS, "diagnosis.json", "diagnosis.txt", "plan.json", "report.html")
)
# As logrotate leaves them, known by their first bytes: names such as `serve.log.2` do not tell.
_COMPRESSED: dict[bytes, Callable[[BinaryIO], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)
# So much of a file tells what it is.
_HEAD = 64 * 1024


class UnreadableLogs(ValueError):
    """There is nothing to read, or too much of it."""


class Logs(dict[str, str]):
    """The text of each file by its path; of files that were not read why, a sentence each."""

    def __init__(self, texts: dict[str, str], unread: dict[str, str]) -> None:
        """Hold both."""
        super().__init__(texts)
        self.unread = unread


def read_logs(paths: Sequence[Path]) -> Logs:
    """Return the text of each file, by its path below the directory that was named.

    UnreadableLogs where none of them is a log that can be read.
    """
    files: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(
                one for one in path.rglob("*") if one.is_file() and one.name not in _NO_LOGS
            )
            files.update({str(one.relative_to(path)): one for one in inside})
        elif path.is_file():
            files[path.name if path.name not in files else str(path)] = path
        else:
            raise UnreadableLogs(f"expected a file or directory of logs, found nothing at {path}")
    if not files:
        raise UnreadableLogs(f"expected logs, found no file below {paths[0]}")
    if len(files) > _MOST_FILES:
        raise UnreadableLogs(
            f"expected at most {_MOST_FILES} logs, found {len(files)}: name a smaller directory"
        )
    room = _room(len(files))
    texts, unread = dict[str, str](), dict[str, str]()
    for name, file in files.items():
        try:
            text, ended = _text(file, room)
            texts |= taken_apart(name, text)
            if ended:
                unread[name] = f"its rest: {_words(ended)}"
        except (*_UNREADABLE, UnreadableLogs) as error:
            unread[name] = _words(error)
    if not texts:
        name, why = next(iter(unread.items()))
        raise UnreadableLogs(f"expected a readable log, found {name}: {why}")
    return Logs(texts, unread)


def read_evidence(paths: Sequence[Path]) -> Evidence:
    """Return what lies beside the logs: a run's record, the evidence of verify, facts."""
    found = Evidence()
    for path in paths:
        if path.is_dir():
            found = found.joined(of_directory(path))
    return found


def _room(files: int) -> Room:
    """Return what each of so many logs may take."""
    share = min(1.0, _MOST_BYTES / files / _ROOM.whole)
    return Room(*(int(part * share) for part in (_ROOM.head, _ROOM.middle, _ROOM.tail)))


class _Readable(io.RawIOBase):
    """A file up to its end, or to where it cannot be read any more."""

    def __init__(self, content: io.BufferedIOBase) -> None:
        self._content = content
        self.why: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            block = self._content.read1(len(buffer))
        except _UNREADABLE as error:
            self.why, block = error, b""
        buffer[: len(block)] = block
        return len(block)


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _text(file: Path, room: Room) -> tuple[str, Exception | None]:
    """Return the text, and why it ends before the file does."""
    with file.open("rb") as plain:
        opened = next((one for mark, one in _COMPRESSED.items() if _starts(plain, mark)), None)
        with cast(io.BufferedIOBase, opened(plain) if opened else plain) as content:
            head = content.read1(_HEAD)
            if other := kind_of(head):
                raise UnreadableLogs(other)
            content.seek(0)
            readable = _Readable(content)
            return kept(as_utf8(cast(BinaryIO, readable), head), room), readable.why


def _starts(file: BinaryIO, mark: bytes) -> bool:
    """Tell whether a file begins with these bytes; it is at its beginning again afterwards."""
    found = file.read(len(mark)) == mark
    file.seek(0)
    return found
