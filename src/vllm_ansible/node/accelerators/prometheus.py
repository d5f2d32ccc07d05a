"""Prometheus' text format, as the textfile collector of its node exporter reads it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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
