"""Read logs that grow, are rotated, and may be far larger than what is of interest."""

from __future__ import annotations

import os

from . import safely


def end_of(path: str, start: int, most: int) -> tuple[bytes, int]:
    """Return what a log holds from a byte on, its last part at most, and where that part begins.

    A log that is shorter than the start was replaced, and one that cannot be read is empty, as is
    what is no regular file, or a link.
    """
    try:
        with os.fdopen(safely.open_file(path), "rb") as file:
            end = file.seek(0, os.SEEK_END)
            first = max(start if start <= end else 0, end - most)
            file.seek(first)
            return file.read(most), first
    except OSError:
        return b"", 0
