"""Say what a person can do about a directory that takes no weights."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

from ..failure import Failure

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_errors_told(where: str) -> Iterator[None]:
    """Raise Failure for errors of the disk; where: the directory of the models."""
    try:
        yield
    except OSError as error:
        # Others come of programs that are not there, or of the network.
        if error.errno in FULL or str(error.filename or "").startswith(where):
            raise disk_failure(error, where) from error
        raise


def disk_failure(error: OSError, where: str) -> Failure:
    """Return an error of the disk in words that a person can act on."""
    place = str(error.filename or where)
    if error.errno in FULL:
        return Failure(
            "the disk is full while weights arrive",
            expected="room for every file of the models",
            found=str(error),
            where=place,
            fix="free some space, or set models_dir to a larger disk; what is there is kept",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return _refused(error, place, where)
    if error.errno == errno.EROFS:
        return Failure(
            f"weights cannot be written: {where} is mounted read-only",
            expected="a directory that this host may write to",
            found=str(error),
            where=place,
            fix="mount it for writing, or set models_dir elsewhere; a model that is whole there "
            "can be served as a directory: model: /path",
        )
    return Failure(
        f"weights cannot be written: {error.strerror or error}",
        expected="a directory that can be written to",
        found=str(error),
        where=place,
        fix="look after that disk, or set models_dir to another one",
    )


def _refused(error: OSError, place: str, where: str) -> Failure:
    """Return what to say where the permissions are wrong: whose it is, and who came."""
    us = _name(os.geteuid())
    if os.geteuid() == 0:
        return Failure(
            f"root may not write weights to {where}",
            expected="a directory that root of this host may write to",
            found=f"{error}: a shared disk that makes nobody of root (root_squash)?",
            where=place,
            fix="export it to this host with no_root_squash, or set models_dir elsewhere",
        )
    owner = _owner(place)
    return Failure(
        f"{us} may not write weights to {where}",
        expected=f"a directory of {us}",
        found=f"{error}; it belongs to {owner}" if owner else str(error),
        where=place,
        fix=f"sudo chown -R {us}: {where}",
    )


def _owner(place: str) -> str:
    """Return who owns a path, or the nearest directory above it that can be seen."""
    while True:
        try:
            return _name(os.stat(place).st_uid)
        except OSError:
            above = os.path.dirname(place.rstrip("/"))
            if above in ("", place):
                return ""
            place = above


def _name(uid: int) -> str:
    """Return a user's name, or the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
