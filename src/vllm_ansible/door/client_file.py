"""The file of clients on this machine: read, changed as a whole, for its owner alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .clients import Client, ClientsFault, parse, written

MODE = 0o600


class FileFault(Exception):
    """The file cannot be used; says where, and what to do."""


def read(path: Path) -> dict[str, Client]:
    """Return the clients of a file.

    Raises FileFault for a file that holds something else, FileNotFoundError where there is none.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise FileFault(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    except ClientsFault as fault:
        raise FileFault(f"{path} {fault}; correct it, or restore it from a copy") from fault


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other commands from changing files of this directory meanwhile."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise FileFault(f"{path.parent} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def write(path: Path, clients: Mapping[str, Client]) -> None:
    """Replace the file in one step; raise FileFault where that is not possible.

    A name that is a link stays one: the file that it leads to is replaced.
    """
    target = path.resolve()
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), MODE)
            file.write(written(clients))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        raise FileFault(f"{path} cannot be written: {error.strerror}") from error
