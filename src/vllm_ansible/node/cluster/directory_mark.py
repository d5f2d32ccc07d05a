"""Tell by a mark in it whether two hosts see the same directory."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

NAME = ".directory"


def read(directory: str) -> str:
    """Return the mark of a directory; empty where it has none yet."""
    path = os.path.join(directory, NAME)
    with suppress(FileNotFoundError, NotADirectoryError), open(path, encoding="utf-8") as mark:
        return mark.read().strip()
    return ""


def make(directory: str) -> str:
    """Return the mark of a directory, which gets one if it has none.

    Hosts that come at once agree: a name is given to a file that is written already, once.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, NAME)
    mine = f"{path}.{secrets.token_hex(16)}"
    if not read(directory):
        with open(mine, "w", encoding="utf-8") as mark:
            mark.write(secrets.token_hex(16))
        try:
            with suppress(FileExistsError):
                os.link(mine, path)
        finally:
            os.unlink(mine)
    return read(directory)
