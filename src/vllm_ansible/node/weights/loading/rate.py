"""Measure how fast a model's own files are read, as vLLM will, without what memory has."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ...launcher import write_json
from ...system.page_cache import is_shown, resident_bytes
from .places import spread
from .way import MAPPED

# Small enough that a slow store is asked for little after the time is up.
PIECE = 1 << 19
# Threads of all ranks; a server or disk that these do not fill is not filled by more.
MOST_READERS = 32
# Of which so much is in memory already, nothing has to be read.
IN_MEMORY = 0.9

Part = tuple[int, int, int]


def measure(
    files: Sequence[str], way: str, readers: int, most_bytes: int, most_seconds: float
) -> dict[str, Any]:
    """Return bytes and seconds of a bounded read of parts that memory has forgotten.

    `why` says why nothing could be measured. surely: the kernel says to this user what is in
    memory; what it would not forget is not counted.
    """
    parts = spread([os.path.getsize(path) for path in files], most_bytes)
    if not parts:
        return {"why": "there are no files"}
    surely = all(map(is_shown, files))
    if surely and _held(files, parts) > IN_MEMORY * _bytes(parts):
        return {"why": "its files are in memory already"}
    _forget(files, parts)
    fresh = 1 - _held(files, parts) / _bytes(parts) if surely else 1.0
    if fresh < 1 - IN_MEMORY:
        return {"why": "memory does not forget its files"}
    number = min(readers, MOST_READERS)
    began = time.monotonic()
    done = round(fresh * _read(files, parts, way, number, began + most_seconds))
    seconds = time.monotonic() - began
    return {
        "way": way,
        "readers": number,
        "bytes": done,
        "seconds": round(seconds, 3),
        "bytes_per_second": round(done / seconds) if seconds else 0,
        "surely": surely,
        "measured_at": round(time.time()),
    }


def fingerprint(storage: Mapping[str, Any], model: str, way: str, readers: int) -> str:
    """Return what a kept rate holds for: these files, there, mounted so, read so."""
    mount = [storage[name] for name in ("place", "point", "kind", "source", "options")]
    text = json.dumps([mount, model, way, min(readers, MOST_READERS)])
    return hashlib.sha256(text.encode()).hexdigest()


def kept(path: str, place: str, mark: str) -> dict[str, Any]:
    """Return the rate that was measured before for the same; nothing where it was for another."""
    found = _all_kept(path).get(place)
    if not isinstance(found, dict) or found.get("fingerprint") != mark:
        return {}
    return {key: value for key, value in found.items() if key != "fingerprint"}


def keep(path: str, place: str, mark: str, rate: Mapping[str, Any]) -> None:
    """Keep a rate, in place of an older one of the same directory."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, {**_all_kept(path), place: {**rate, "fingerprint": mark}}, mode=0o644)


def _all_kept(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as text:
        known = json.load(text)
        return known if isinstance(known, dict) else {}
    return {}


def _bytes(parts: Sequence[Part]) -> int:
    return sum(length for _, _, length in parts)


def _held(files: Sequence[str], parts: Sequence[Part]) -> int:
    """Return how many bytes of parts are in memory."""
    held = 0
    for number, offset, length in parts:
        with open(files[number], "rb") as handle:
            held += min(length, resident_bytes(handle.fileno(), offset, length))
    return held


def _forget(files: Sequence[str], parts: Sequence[Part]) -> None:
    """Let memory forget parts; they are about to be read into it again."""
    for number, offset, length in parts:
        with open(files[number], "rb") as handle:
            os.posix_fadvise(handle.fileno(), offset, length, os.POSIX_FADV_DONTNEED)


def _read(
    files: Sequence[str], parts: Sequence[Part], way: str, readers: int, deadline: float
) -> int:
    """Read parts until the time is up, and return the bytes."""
    if way == MAPPED:
        return sum(_copy(files[number], at, size, deadline) for number, at, size in parts)
    with ThreadPoolExecutor(readers) as pool:
        return sum(pool.map(lambda one: _fetch(files[one[0]], one[1], one[2], deadline), parts))


def _fetch(path: str, offset: int, length: int, deadline: float) -> int:
    """Read one part by calls, as what reads ahead does."""
    done = 0
    with open(path, "rb", buffering=0) as handle:
        while done < length and time.monotonic() < deadline:
            got = len(os.pread(handle.fileno(), min(PIECE, length - done), offset + done))
            if not got:
                break
            done += got
    return done


def _copy(path: str, offset: int, length: int, deadline: float) -> int:
    """Read one part out of a mapped file, as a tensor is copied."""
    done = 0
    if time.monotonic() >= deadline:
        return done
    with (
        open(path, "rb") as handle,
        mmap.mmap(handle.fileno(), length, access=mmap.ACCESS_READ, offset=offset) as view,
    ):
        while done < length and time.monotonic() < deadline:
            done += len(view[done : done + PIECE])
    return done
