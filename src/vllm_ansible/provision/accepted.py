"""Which rented machines were found fit: looked at once, when they are new.

A machine that serves is busy, and may be out of reach for a while for reasons of the controller's
own. Neither may end it in a later run.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree

from . import files

# What ssh says where a login is refused.
REFUSALS = ("permission denied", "host key verification failed", "no such identity")


def refuses_login(words: str) -> bool:
    """Tell whether a machine answers and lets this side not in, by the words of ssh."""
    return any(one in words.lower() for one in REFUSALS)


class Accepted:
    """A file for each accepted machine, by its id, with what was said of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def told(self, identity: str) -> str | None:
        """Return what was said when a machine was accepted; None where it never was."""
        try:
            return str(json.loads(self._file(identity).read_text())["told"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, identity: str, told: str) -> None:
        """Remember a machine as fit."""
        files.write(self._file(identity), json.dumps({"told": told}))

    def forget(self) -> None:
        """Remember none: all machines are gone."""
        rmtree(self._directory, ignore_errors=True)

    def _file(self, identity: str) -> Path:
        # An id comes from the provider, and a path must not.
        return self._directory / f"{identity.replace('/', '_')}.json"
