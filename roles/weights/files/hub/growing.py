"""A part of a file that grows to its end, from whatever source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from folder import size_of
from words import Failure

# Written in steps of a piece: what is held back here, no peer gets either.
BLOCK = 2**18

# From where the bytes come that an answer brings, and the bytes.
Answer = tuple[int, Iterable[bytes]]


class ShortAnswer(Exception):
    """An answer that ended well, and before the file did."""


def other_size(name: str, wanted: int, found: int, where: str) -> Failure:
    """Return what to say of a file that is longer or shorter than it should be, in bytes."""
    return Failure(
        f"{name} came back with another size",
        expected=f"{wanted} bytes, as it was listed",
        found=f"{found} bytes",
        where=where,
        fix="run the stage weights again; if it stays so, check the proxy or mirror",
    )


def grow(
    name: str,
    size: int,
    part: Path,
    asks: Callable[[int], AbstractContextManager[Answer]],
    stopped: Callable[[], bool],
    where: str,
) -> None:
    """Append to a part what is missing of a file.

    size: bytes of the whole file; asks: asks for the file from an offset on. Raises ShortAnswer
    where the answer ends early, Failure where there is more than the file.
    """
    have = size_of(part)
    if have < size or not part.exists():
        with asks(have) as (offset, content), open(part, "ab", buffering=BLOCK) as file:
            file.truncate(offset)  # 0 where the answer is the whole file
            for data in content:
                file.write(data)
                if stopped():
                    return
    if size_of(part) < size:
        raise ShortAnswer(name)
    if size_of(part) > size:
        found = size_of(part)
        part.unlink()
        raise other_size(name, size, found, where)
