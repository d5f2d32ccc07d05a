"""Say what a person can do about a directory that takes no weights."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...failure import Failure


@dataclass(frozen=True)
class Kept:
    """What a directory is to take, in the words of errors, and the variable that sets it."""

    name: str = "weights"
    arriving: str = "weights arrive"
    room_for: str = "every file of the models"
    variable: str = "models_dir"
    besides: str = "a model that is whole there can be served as a directory: model: /path"


WEIGHTS = Kept()
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


def disk_failure(error: OSError, where: str, kept: Kept = WEIGHTS) -> Failure:
    """Return an error of the disk in words that a person can act on."""
    place = str(error.filename or where)
    if error.errno in FULL:
        return Failure(
            f"the disk is full while {kept.arriving}",
            expected=f"room for {kept.room_for}",
            found=str(error),
            where=place,
            fix=f"free some space, or set {kept.variable} to a larger disk; what is there is kept",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return _refused(error, place, where, kept)
    if error.errno == errno.EROFS:
        return Failure(
            f"{kept.name} cannot be written: {where} is mounted read-only",
            expected="a directory that this host may write to",
            found=str(error),
            where=place,
            fix=f"mount it for writing, or set {kept.variable} elsewhere; {kept.besides}",
        )
    return Failure(
        f"{kept.name} cannot be written: {error.strerror or error}",
        expected="a directory that can be written to",
        found=str(error),
        where=place,
        fix=f"look after that disk, or set {kept.variable} to another one",
    )


def _refused(error: OSError, place: str, where: str, kept: Kept) -> Failure:
    """Return what to say where the permissions are wrong: whose it is, and who came."""
    us = _name(os.geteuid())
    if os.geteuid() == 0:
        return Failure(
            f"root may not write {kept.name} to {where}",
            expected="a directory that root of this host may write to",
            found=f"{error}: the export may use root_squash",
            where=place,
            fix=f"export it to this host with no_root_squash, or set {kept.variable} elsewhere",
        )
    owner = _owner(place)
    return Failure(
        f"{us} may not write {kept.name} to {where}",
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
