"""Prometheus' text format, as the textfile collector of its node exporter reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# Labels, and the value as it is written.
Sample = tuple[Mapping[str, str], str]


def text(
    samples: Mapping[str, Sequence[Sample]],
    helps: Mapping[str, str],
    counters: Collection[str] = (),
) -> str:
    """Return metrics by name, each with words on what it is; one without samples is left out.

    counters: the names of those that only grow; all others are gauges.
    """
    lines = []
    for name, rows in samples.items():
        if rows:
            kind = "counter" if name in counters else "gauge"
            lines += [f"# HELP {name} {helps[name]}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value}" for labels, value in rows]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write(path: Path, content: str) -> None:
    """Replace a file at once: whoever reads it never finds half of it.

    Root writes where others may write, too: what has a name there already is never followed.
    """
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), 0o644)
            stream.write(content)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
