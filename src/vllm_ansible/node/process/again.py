"""Start what a container ran before it was started again, for it has no init that would do so.

What was stopped by somebody stays so. Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ..failure import Failure
from . import process
from .manage import manage
from .process import Files
from .supervisord import Supervisord


def start(cluster_dir: str, run_dir: str, python: str) -> list[str]:
    """Start every recorded process that does not run, in the order of its last start.

    Return what became of each, one line for each process.
    """
    supervisor = Supervisord(cluster_dir, run_dir, python)
    found = ((name, Files(cluster_dir, name)) for name in process.recorded_names(cluster_dir))
    records = [(name, files, process.read_json(files.record)) for name, files in found]
    told = []
    for name, files, record in sorted(records, key=lambda one: _began(one[2])):
        if not record or record.get("stopped") or record.get("supervisor") != supervisor.name:
            continue
        labels = {key: record[key] for key in ("cluster", "engine", "stop_timeout_seconds")}
        try:
            done = manage(supervisor, files, process.spec(record), labels, "started")
            told.append(f"{name}: {'started again' if done['changed'] else 'runs'}")
        except (Failure, OSError) as error:
            # What others need of it, they say in their own logs.
            told.append(f"{name}: could not be started: {error}; site.yml starts it")
    return told


def _began(record: Any) -> float:
    return float((record or {}).get("recorded_at", 0))


def main(path: str) -> int:
    """Start all of a cluster on this host, whose settings are in a file; say what was done."""
    with open(path, encoding="utf-8") as handle:
        settings = json.load(handle)
    for line in start(**settings):
        print(time.strftime("%Y-%m-%dT%H:%M:%S%z"), line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
