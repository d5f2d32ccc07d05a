"""Models in a directory that was only named: whether the service reads them, and what they hold.

Blocks of each tensor are known at once. What whole files hold is found out beside the engines,
and kept beside its record as {name: [bytes, mtime_ns, inode, ctime_ns, sha256]}.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Callable, Optional

from .. import forked, launcher
from ..failure import expect_user
from .models import Model, names
from .safetensors import WeightsError

LOOK_SECONDS = 60
BLOCK = 1 << 20
REPORT_BYTES = 256 << 20


def state(path: str) -> list[int]:
    """Return what changes with a file: a copy of the same size and time has another inode."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def expect_readable(place: str, user: Optional[str]) -> None:
    """Raise WeightsError where the user that engines run as may not read a file.

    As that user, since files may be closed to root where he reads them and the other way round.
    """
    if not user:
        return
    expect_user(user, WeightsError)

    def look(tell: forked.Tell) -> None:
        launcher.become(user)
        os.listdir(place)
        for name in names(place):
            with open(os.path.join(place, name), "rb"):
                pass

    found = forked.run_each([look], LOOK_SECONDS, OSError)[0]
    if "error" in found:
        raise WeightsError(
            f"{user}, who engines run as, cannot read the model in {place}",
            expected=f"directory and files that {user} may read",
            found=found["error"],
            where=place,
            fix=f"chmod -R o+rX {place}, and o+x on the directories above it; or set service_user "
            "to one who may",
        )


def whole(model: Model, models_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each whole file that is known and has not changed since."""
    place, found = model.place(models_dir), {}
    for name, entry in _kept(model, models_dir).items():
        with suppress(OSError, TypeError, ValueError):
            *before, sha256 = entry
            if state(os.path.join(place, name)) == before:
                found[name] = str(sha256)
    return found


def forget(model: Model, models_dir: str) -> None:
    """Know nothing of whole files any more, so that all are read again."""
    with suppress(FileNotFoundError):
        os.unlink(_file(model, models_dir))


def lacking(model: Model, models_dir: str, record: Mapping[str, Any]) -> list[str]:
    """Return the files of a record that blocks alone are known of."""
    known = whole(model, models_dir)
    sampled = [str(one["name"]) for one in record["files"] if one.get("sampled")]
    return [name for name in sampled if name not in known]


def hash_whole(
    model: Model, models_dir: str, record: Mapping[str, Any], report: Callable[..., None]
) -> None:
    """Read what blocks alone are known of; what is known is kept file by file."""
    os.nice(19 - os.nice(0))
    place, missing = model.place(models_dir), lacking(model, models_dir, record)
    sizes = {str(one["name"]): int(one["bytes"]) for one in record["files"]}
    total, done = sum(sizes[name] for name in missing), 0
    for name in missing:
        path, digest = os.path.join(place, name), hashlib.sha256()
        before = state(path)
        with open(path, "rb") as content:
            for number, block in enumerate(iter(lambda: content.read(BLOCK), b"")):
                digest.update(block)
                done += len(block)
                if number % (REPORT_BYTES // BLOCK) == 0:
                    report(done, total, "bytes", f"{model.name}: reading {name}")
        if state(path) == before:
            known = {**_kept(model, models_dir), name: [*before, digest.hexdigest()]}
            launcher.write_json(_file(model, models_dir), known, mode=0o644)


def _file(model: Model, models_dir: str) -> str:
    return os.path.join(models_dir, f".{model.slug()}.whole")


def _kept(model: Model, models_dir: str) -> dict[str, Any]:
    """Return what the file says, nothing where it is missing or damaged."""
    with suppress(OSError, ValueError), open(_file(model, models_dir), encoding="utf-8") as kept:
        known = json.load(kept)
        return known if isinstance(known, dict) else {}
    return {}
