"""Tell a log from another kind of file, and read it as UTF-8 whatever its program wrote it in."""

from __future__ import annotations

import codecs
import io
from typing import BinaryIO

# The byte order marks; PowerShell and Windows' consoles redirect in UTF-16. Of UTF-32 the first two
# bytes are those of UTF-16, so it comes first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
# What lies beside logs and is none, with what makes a log of it: by its first bytes, and where.
_KINDS = (
    (0, b"LPKSHHRH", "systemd's journal; write it out with `journalctl --file`"),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it with `zstd -d`"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4; unpack it with `lz4 -d`"),
    (0, b"PK\x03\x04", "an archive; unpack it"),
    (257, b"ustar", "an archive; unpack it"),
    (0, b"\x7fELF", "a program, no log"),
)
# Programs write these into a log as well: bell, backspace, tabulators, line and page ends, escape.
_WRITTEN = frozenset("\a\b\t\n\v\f\r\x1b")
# Of compressed or random bytes 9 % are other control characters: 23 of 255. What is no UTF-8 tells
# nothing: most characters of a log in GBK or KOI8-R are none.
_MOST_CONTROLS = 0.05
_BLOCK = 64 * 1024


def kind_of(head: bytes) -> str:
    """Return what a file is that is no log, by its first bytes, and nothing of a log."""
    for start, mark, kind in _KINDS:
        if head[start : start + len(mark)] == mark:
            return kind
    text = head.decode(_encoding(head) or "utf-8", errors="replace").replace("\0", "")
    controls = sum(one < " " and one not in _WRITTEN for one in text)
    return "binary, no log" if controls > _MOST_CONTROLS * len(text) else ""


def as_utf8(content: BinaryIO, head: bytes) -> BinaryIO:
    """Return the content in UTF-8 and without NUL bytes.

    A crash of the host leaves blocks of NUL at the end of a log, and a log that is cut while its
    program goes on writing has them at its beginning, before words on the same line.
    """
    return io.BufferedReader(_Utf8(content, _encoding(head)), _BLOCK)


def _encoding(head: bytes) -> str:
    return next((name for mark, name in _MARKS if head.startswith(mark)), "")


class _Utf8(io.RawIOBase):
    """Bytes of a file, decoded and encoded again where they are not in UTF-8."""

    def __init__(self, content: BinaryIO, encoding: str) -> None:
        self._content = content
        self._decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            block = self._content.read(_BLOCK)
            found = block
            if self._decoder:
                found = self._decoder.decode(block, final=not block).encode(errors="replace")
            self._left = found.replace(b"\0", b"")
            if not block and not self._left:
                return 0
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
