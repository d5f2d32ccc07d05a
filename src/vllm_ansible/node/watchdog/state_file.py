"""A state file that is written also while its own file system is full."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Mapping
from typing import Any

from .. import launcher

# Two files of so much are kept in reserve: one is read as the state while the other is written.
RESERVED_BYTES = 1 << 16
RESERVES = (".reserve-0", ".reserve-1")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
MODE = 0o644
RENAME_EXCHANGE, AT_FDCWD = 2, -100


def reserve(directory: str) -> list[str]:
    """Make the files in reserve, before there is no space; return their paths."""
    paths = [os.path.join(directory, name) for name in RESERVES]
    for path in paths:
        _reserve(path)
    return paths


def write(directory: str, state: Mapping[str, Any], lasting: bool = False) -> None:
    """Replace the state in one step, so that a reader never sees half of it.

    lasting: as of `launcher.write_json`; what is written in place need not last.
    """
    path, reserves = os.path.join(directory, "state.json"), reserve(directory)
    try:
        launcher.write_json(path, state, mode=MODE, lasting=lasting)
    except OSError as error:
        if error.errno not in NO_SPACE or not _in_place(path, reserves, state):
            raise


def _size(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


def _reserve(path: str) -> None:
    """Make a file that takes its space before there is none."""
    if _size(path) >= RESERVED_BYTES:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(descriptor, MODE)
            os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
        finally:
            os.close(descriptor)


def _in_place(path: str, reserves: list[str], state: Mapping[str, Any]) -> bool:
    """Write a reserve, which takes no space, and exchange it for the state; tell if it fits."""
    text = json.dumps(state, sort_keys=True).encode()
    spare = max(reserves, key=_size)
    size = _size(spare)
    if size < len(text):
        return False
    with open(spare, "r+b") as handle:
        handle.write(text.ljust(size))
    if not _exchange(spare, path):
        os.replace(spare, path)
    return True


def _exchange(one: str, other: str) -> bool:
    """Exchange two files in one step; some file systems cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):
        names = os.fsencode(one), os.fsencode(other)
        code = library.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)
        return bool(code == 0)
    return False
