"""The events of a run, one JSON object a line, written by every process that takes part."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .redact import redact

FILE = "events.jsonl"


def now() -> str:
    """Return this moment as the record writes it: UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def append(run_dir: str | Path, event: Mapping[str, Any]) -> None:
    """Add one event to the record.

    The line goes out in a single O_APPEND write, so that workers and the callback can share the
    file without a lock, and so that an interrupted run keeps everything up to its last moment.
    """
    line = json.dumps({"time": now(), **redact(dict(event))}, default=str, ensure_ascii=False)
    # Only the owner may read what hosts reported.
    descriptor = os.open(Path(run_dir) / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode("utf-8", "replace") + b"\n")
    finally:
        os.close(descriptor)


def read(run_dir: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a run in order, leaving out what a killed writer left half done."""
    path = Path(run_dir) / FILE
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event


def current() -> Path | None:
    """Return the directory of the run this process belongs to, if it is being recorded."""
    directory = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
    return Path(directory) if directory and Path(directory).is_dir() else None
