"""Take away what a measurement has left where an engine may write."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from .. import safely
from ..process.process import ProcessError

# Of each request its text and the time of every token.
MOST_BYTES = 256 << 20


def taken(path: str, engine: str, log: str, command: str) -> dict[str, Any]:
    """Return what the measurement of an engine has written and remove it, or say there is none."""
    raw = take(path)
    if raw is None:
        raise ProcessError(
            f"The measurement of {engine} ended without a result.",
            expected=f"figures in {path}",
            found="no such file",
            where=log,
            fix="Read the log of the measurement.",
            command=command,
        )
    return raw


def take(path: str) -> Optional[dict[str, Any]]:
    """Return what a measurement has written, None where nothing is, and remove it.

    The engine may write there: root neither reads nor removes what a link of its leads to.
    """
    above, name = os.path.split(path)
    try:
        with safely.walked(above) as directory:
            try:
                with os.fdopen(safely.open_in(directory, name), "rb") as file:
                    raw = json.loads(file.read(MOST_BYTES))
            finally:
                os.unlink(name, dir_fd=directory.descriptor)
        if not isinstance(raw, dict):
            raise ValueError("it is not a JSON object")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ProcessError(
            f"The result of the measurement cannot be read: {error}.",
            expected="a regular file with a JSON object",
            found=str(error),
            where=path,
            fix="Look at what lies there and who made it, remove it, and measure again.",
        ) from error
    return raw
