"""Write, synchronise, lock, rename and remove a scratch file as the user who will do so."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import Any, Optional

from .. import forked, launcher

# A hard mount whose server is gone holds whoever touches it. A disk that works is slow to
# synchronise while others write gigabytes: it took more than ten seconds beside three engines.
SECONDS = 60.0


def tried(directory: str, user: Optional[str]) -> dict[str, Any]:
    """Return `error` and the `step` it happened in, or neither; as the user if root calls."""

    def work(tell: forked.Tell) -> None:
        launcher.become(user)
        scratch = os.path.join(directory, f".preflight-{os.getpid()}")
        renamed = f"{scratch}-renamed"
        try:
            steps(scratch, renamed, tell)
        finally:
            for path in (scratch, renamed):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    found = forked.run_each([work], SECONDS, Exception)[0]
    # What was last told is where it ended.
    step = found.get("step", "become the user")
    error = found.get("error")
    return {"user": user or "", "step": step, "error": error} if error else {"user": user or ""}


def steps(scratch: str, renamed: str, tell: forked.Tell) -> None:
    """Do what engines and their caches do to files, telling each step before it."""
    tell("step", "create")
    handle = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        tell("step", "flock")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tell("step", "write")
        if os.write(handle, b"preflight\n" * 1000) != 10000:
            raise OSError(errno.ENOSPC, "only a part could be written")
        tell("step", "fsync")
        os.fsync(handle)
        tell("step", "rename")
        os.rename(scratch, renamed)
    finally:
        os.close(handle)
