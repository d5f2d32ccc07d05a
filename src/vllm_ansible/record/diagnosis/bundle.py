"""One archive of what a failure left, redacted, to hand on to whoever helps."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import events
from ..redact import redact, redact_text, visible
from .evidence import FACTS, KEPT, Evidence, as_document
from .page import page

_MODE = 0o600


class BundleExists(ValueError):
    """There is a file of this name already."""


def write(
    file: Path,
    logs: Mapping[str, str],
    answer: Mapping[str, Any],
    evidence: Evidence,
    beside: tuple[Path, ...] = (),
) -> list[str]:
    """Write the archive, which only its owner may read, and return the names of what is in it.

    beside: directories with a run's record or the evidence of verify, which go in as well.
    BundleExists where the file is there: nothing is overwritten.
    """
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
    except FileExistsError as error:
        raise BundleExists(f"expected a name for a new file, found a file at {file}") from error
    names = []
    try:
        with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, text in _members(logs, answer, evidence, beside):
                _add(archive, f"diagnosis/{name}", text)
                names.append(name)
    except BaseException:
        # Half an archive would be handed on as a whole one.
        file.unlink(missing_ok=True)
        raise
    return names


def _members(
    logs: Mapping[str, str],
    answer: Mapping[str, Any],
    evidence: Evidence,
    beside: tuple[Path, ...],
) -> Iterator[tuple[str, str]]:
    """Yield name and redacted text of each file of the archive."""
    yield "diagnosis.txt", redact_text(page(answer)) + "\n"
    yield "diagnosis.json", _json(answer)
    yield FACTS, _json(as_document(evidence))
    for directory in beside:
        yield from _record(directory)
    for name, text in logs.items():
        yield f"logs/{_safe(name)}", visible(redact_text(text))


def _record(directory: Path) -> Iterator[tuple[str, str]]:
    if (directory / events.FILE).is_file():
        lines = (json.dumps(redact(one), default=str) for one in events.read(directory))
        yield events.FILE, "".join(f"{line}\n" for line in lines)
    try:
        yield KEPT, _json(json.loads((directory / KEPT).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return


def _json(value: Any) -> str:
    return json.dumps(redact(value), indent=2, default=str) + "\n"


def _safe(name: str) -> str:
    """Return a path inside the archive, whatever the log's name leads to."""
    parts = [re.sub(r"[^\w.@+=-]+", "-", part) for part in name.split("/")]
    kept = [part for part in parts if part.strip(".")]
    path = "/".join(kept) or "log"
    return path.removesuffix(".gz")


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode("utf-8", "replace")
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), _MODE, int(time.time())
    archive.addfile(member, io.BytesIO(data))
