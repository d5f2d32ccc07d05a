"""Files of the controller that its owner alone reads, whole at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Replace a file, and make its directory; one that holds this text already is left alone."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Of this process alone: the one that watches the limits writes too.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    except OSError:
        # A disk that is full is not filled further by what failed.
        partial.unlink(missing_ok=True)
        raise
