"""What an engine compiles at its start, packed for other hosts and taken over by them.

vLLM, Inductor, Triton, FlashInfer and DeepGEMM find it again by what it was compiled from, so what
does not fit another host is not used there. The engine's user owns it and could lead root astray
with links: all of this is done as that user, and no link is followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Callable, Optional

from .. import forked, launcher, safely

# Below an engine's cache. What is not here holds for one host alone, such as which GPUs see which.
KINDS = (
    "vllm/torch_compile_cache",
    "vllm/deep_gemm",
    "vllm/flashinfer_autotune_cache",
    ".cache/flashinfer",
    "inductor",
    "triton",
)
# Whoever works as the engine's user can be stopped by the engine. Gigabytes on a slow disk fit.
LOOK_SECONDS, SECONDS = 120.0, 1800.0


class CompiledError(Exception):
    """What was compiled cannot be packed or taken over."""


def look(cache: str) -> dict[str, int]:
    """Return how many files were compiled below a cache, and their bytes."""
    sizes = [status.st_size for _, status in _files(cache)]
    return {"files": len(sizes), "bytes": sum(sizes)}


def pack(cache: str, target: BinaryIO, user: Optional[str], limit: int) -> dict[str, Any]:
    """Write what was compiled to an open file; return files, size (bytes) and SHA-256 of it.

    Raises CompiledError where it would have more bytes than the limit.
    """

    def work() -> dict[str, Any]:
        total, count = look(cache)["bytes"], 0
        if total > limit:
            raise CompiledError(f"{total} bytes were compiled, more than {limit}")
        total = 0
        # Much of it is text, and the way to the controller may be a slow one.
        with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as archive:
            for path, _ in _files(cache):
                # An engine that runs may rename its files meanwhile, and let them grow.
                with suppress(FileNotFoundError), _opened(path) as handle:
                    entry = tarfile.TarInfo(os.path.relpath(path, cache))
                    entry.size = os.fstat(handle.fileno()).st_size
                    entry.mode = 0o600 | os.fstat(handle.fileno()).st_mode & 0o100
                    total += entry.size
                    if total > limit:
                        raise CompiledError(f"{total} bytes were compiled, more than {limit}")
                    archive.addfile(entry, handle)
                    count += 1
        # A child that ends takes with it what it has not written.
        target.flush()
        return {"files": count}

    told = as_user(user, work, SECONDS)
    size = target.seek(0, os.SEEK_END)
    target.seek(0)
    digest = hashlib.sha256()
    while piece := target.read(1 << 20):
        digest.update(piece)
    return {**told, "size": size, "sha256": digest.hexdigest()}


def unpack(source: BinaryIO, cache: str, user: Optional[str]) -> int:
    """Add the files of an archive that are not there yet; return how many.

    Raises CompiledError, and has then written nothing, where an archive holds anything else than
    what is compiled.
    """

    def work() -> dict[str, Any]:
        added = 0
        with tarfile.open(fileobj=source, mode="r:gz") as archive:
            entries = archive.getmembers()
            for entry in entries:
                _check(entry)
            for entry in entries:
                content = archive.extractfile(entry)
                if content is not None:
                    added += _add(Path(cache, entry.name), content, entry.mode)
        return {"files": added}

    return int(as_user(user, work, SECONDS)["files"])


def as_user(
    user: Optional[str], work: Callable[[], dict[str, Any]], seconds: float = LOOK_SECONDS
) -> dict[str, Any]:
    """Return what work tells, done in a child that is that user; raise CompiledError if it fails.

    The child is ended when its time is over. Without root there is one user only, and it is done
    here.
    """
    if user is None or os.geteuid() != 0:
        return work()

    def dropped(tell: forked.Tell) -> None:
        launcher.become(user)
        try:
            tell("told", work())
        except Exception as error:
            raise CompiledError(str(error) or type(error).__name__) from error

    (found,) = forked.run_each([dropped], seconds, CompiledError)
    if "error" in found:
        raise CompiledError(f"as {user}: {found['error']}")
    return dict(found["told"])


def _files(cache: str) -> Iterator[tuple[str, os.stat_result]]:
    """Return the path and status of each file that was compiled, in order; no links."""
    for kind in KINDS:
        top = os.path.join(cache, kind)
        if os.path.realpath(top) != os.path.join(os.path.realpath(cache), kind):
            continue
        for directory, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode) and not name.endswith((".lock", ".tmp")):
                        yield path, status


def _opened(path: str) -> BinaryIO:
    """Open a file that was seen; one that is no regular file any more is not found."""
    # A FIFO would hold whoever opens it without O_NONBLOCK, which FILE has.
    handle = os.fdopen(os.open(path, os.O_RDONLY | safely.FILE), "rb")
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise FileNotFoundError(errno.ENOENT, "no regular file any more", path)
    return handle


def _check(entry: tarfile.TarInfo) -> None:
    parts = Path(entry.name).parts
    known = any(parts[: len(Path(kind).parts)] == Path(kind).parts for kind in KINDS)
    if not entry.isfile() or ".." in parts or not known:
        raise CompiledError(f"the archive holds {entry.name!r}, which no engine compiles")


def _add(path: Path, content: IO[bytes], mode: int) -> int:
    if os.path.lexists(path):
        return 0
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(descriptor, "wb") as handle:
        shutil.copyfileobj(content, handle)
    os.chmod(temporary, mode)
    os.replace(temporary, path)
    return 1
