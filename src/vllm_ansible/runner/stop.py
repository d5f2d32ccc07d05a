"""A wish to stop, which a handler of signals may utter at any moment."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class Cancel(Protocol):
    """What a run looks at to know whether it should end; a threading.Event is one."""

    def is_set(self) -> bool:
        """Tell whether the run should end."""


class Stop:
    """Set by a handler of signals, and waited for in the very thread that the handler interrupts.

    A threading.Event does not bear that: each of its waits holds a lock for moments, and a handler
    that comes in one of them waits for that lock, which only the thread it interrupts could free.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._stopped = False

    def set(self) -> None:
        """Wish that it stops."""
        self._stopped = True
        # A full pipe has been written to before.
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def is_set(self) -> bool:
        """Tell whether it should stop."""
        return self._stopped

    def wait(self, seconds: float) -> bool:
        """Wait for the wish, at most so long; tell whether it came."""
        select.select([self._reader], [], [], seconds)
        return self._stopped


@contextmanager
def stop() -> Iterator[Stop]:
    """Give a wish to stop, and close what it is carried by."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        yield Stop(reader, writer)
    finally:
        os.close(reader)
        os.close(writer)
