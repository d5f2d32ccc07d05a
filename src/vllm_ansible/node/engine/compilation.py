"""Whether an engine compiled between requests: its own log says so."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress

from ..log_file import end_of
from ..process import process

# vLLM 0.32.0: vllm/utils/jit_monitor.py after warm-up, vllm/compilation/monitor.py and backends.py.
LINE = re.compile(
    r"JIT compilation during inference|autotuning during inference|Starting torch\.compile"
    r"|torch\.compile took|torch\.compile takes|Compiling a graph for compile range"
)
MOST_BYTES = 16 << 20
MOST_SHOWN = 300


def logs(cluster_dir: str, engine: str) -> dict[str, int]:
    """Return the logs of an engine's processes on this host, and how long they are."""
    found = {}
    for name in process.recorded_names(cluster_dir):
        record = process.read_json(process.Files(cluster_dir, name).record) or {}
        if record.get("engine") == engine and record.get("log"):
            found[str(record["log"])] = 0
            with suppress(OSError):
                found[str(record["log"])] = os.path.getsize(record["log"])
    return found


def since(before: Mapping[str, int]) -> str:
    """Return the first line about compilation that logs have grown by, empty without one."""
    for path, size in before.items():
        grown = end_of(path, size, MOST_BYTES)[0].decode(errors="replace")
        line = next((one for one in grown.splitlines() if LINE.search(one)), "")
        if line:
            return line.strip()[:MOST_SHOWN]
    return ""
