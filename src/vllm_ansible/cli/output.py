"""Standard output whose reader may leave, as `head` does: the work goes on, and so does its end."""

from __future__ import annotations

import os
import sys
from typing import Any


class Output:
    """A text stream that is silent once nobody reads it any more."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or say nothing to nobody."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._leave()
        return len(text)

    def flush(self) -> None:
        """Hand on what is kept back."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        # Python flushes what is left once more at its end, and others may write there, too.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """Be the stream in all else."""
        return getattr(self._stream, name)


def outlive_readers() -> None:
    """Let this process end as it would even when nobody reads its standard output."""
    if not isinstance(sys.stdout, Output):
        sys.stdout = Output(sys.stdout)
