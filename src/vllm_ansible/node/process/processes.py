"""Look at all recorded processes of a cluster on this host in one go."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from . import process, supervisord, systemd
from .process import Files, Look


def looks(cluster_dir: str, cluster: str, run: systemd.Run) -> dict[str, dict[str, Any]]:
    """Return what is recorded and what runs, by the name of the process.

    The supervisor is the one each record names, so that a cluster that was moved from one to the
    other is still seen whole.
    """
    records = {}
    for name in process.recorded_names(cluster_dir):
        record = process.read_json(Files(cluster_dir, name).record)
        if record is not None:
            records[name] = record
    services = [name for name, record in records.items() if record["supervisor"] == "systemd"]
    shown = dict(zip(services, systemd.Systemd(cluster, "", run).show(services)))  # noqa: B905 Python 3.9
    result = {}
    for name, record in records.items():
        files = Files(cluster_dir, name)
        found = (
            systemd.look(shown[name], record) if name in shown else supervisord.look(files, record)
        )
        result[name] = describe(files, record, found)
    return result


def describe(files: Files, record: Mapping[str, Any], found: Look) -> dict[str, Any]:
    """Return what people and playbooks want to know of one process."""
    try:
        log_size = os.path.getsize(record["log"])
    except FileNotFoundError:
        log_size = 0
    return {
        "engine": record["engine"],
        "running": found.running,
        "why": "" if found.running else found.why,
        "pid": found.pid,
        "digest": record["digest"],
        "instance": found.instance,
        "started_at": found.started_at,
        "exit_status": found.exit_status,
        "ended_at": found.ended_at,
        "leftovers": list(found.leftovers),
        "command": shlex.join(record["argv"]),
        "log": files.log,
        "log_offset": record["log_offset"],
        "log_size": log_size,
    }


def others_ended(records: Mapping[str, Mapping[str, Any]], server: str) -> dict[str, str]:
    """Return why each other server of a server's engine does not run, by name.

    Data ranks wait for each other: of one that died, the others say nothing for minutes.
    """
    engine = records[server]["engine"]
    alike = re.compile(re.escape(engine) + r"-serve(-\d+)?")
    return {
        name: str(record["why"])
        for name, record in records.items()
        if name != server
        and record["engine"] == engine
        and alike.fullmatch(name)
        and not record["running"]
    }
