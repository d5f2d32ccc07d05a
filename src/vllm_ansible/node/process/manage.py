"""Bring one process to the wanted state: look, decide, act, report."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from collections.abc import Mapping
from typing import Any, Optional

from .. import launcher
from . import family, process
from .process import Decision, Files, Look, ProcessError, Spec, Supervisor


def check_owner(files: Files, record: Optional[Mapping[str, Any]], cluster: str) -> None:
    """Refuse a name that another cluster's record holds."""
    if record is not None and record["cluster"] != cluster:
        raise ProcessError(
            f"The process {files.name} in {files.cluster_dir} belongs to cluster"
            f" {record['cluster']}, not to {cluster}.",
            expected=f"a record of cluster {cluster}, or none",
            found=f"a record of cluster {record['cluster']}",
            where=files.record,
            fix="Give each cluster its own cluster_name and directory.",
        )


def refusal(files: Files, decision: Decision, record: Mapping[str, Any]) -> ProcessError:
    """Return the error that says what changed and how to allow the restart."""
    return ProcessError(
        f"{files.name} runs, and what was asked for differs: {decision.reason}.",
        expected="the running process, unchanged, or permission to restart it",
        found=list(decision.changes),
        where=files.record,
        command=shlex.join(record["argv"]),
        fix="Run again with -e allow_disruption=true, or undo the change; allow_restart: true "
        "where the module is called alone.",
    )


def own_user(cluster: str, record: Optional[Mapping[str, Any]]) -> Optional[int]:
    """Return the number of the user that was made for a cluster, if that runs a process."""
    name = f"vllm-{cluster}"
    if (record or {}).get("user") != name:
        return None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def act(
    supervisor: Supervisor,
    files: Files,
    record: Optional[Mapping[str, Any]],
    action: str,
    wanted: Optional[Spec],
    labels: Mapping[str, Any],
) -> list[str]:
    """Carry out one action and return warnings."""
    # A start goes through a stop as well: nothing of an earlier start may be left beside it.
    launcher.note_shared(files.shared, family.family(files.record, {}))
    supervisor.stop(files, record, float(labels["stop_timeout_seconds"]))
    # All notes: what a server made, a Ray node may have had mapped until now.
    notes = process.shared_notes(files.cluster_dir)
    launcher.sweep_shared(notes, own_user(labels["cluster"], record))
    if action in ("start", "restart") and wanted is not None:
        fresh = process.new_record(wanted, files, labels, supervisor.name)
        return supervisor.start(files, fresh)
    if action == "stop" and record is not None:
        process.save(files, {**record, "stopped": True})
    if action == "remove":
        supervisor.remove(files)
        for path in (files.record, files.state):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return []


def report(
    files: Files, look: Look, record: Optional[Mapping[str, Any]], decision: Decision
) -> dict[str, Any]:
    """Return what the module answers."""
    known = record or {}
    return {
        "changed": decision.action != "none",
        "action": decision.action,
        "reason": decision.reason,
        "running": look.running,
        "pid": look.pid,
        "instance": look.instance,
        "exit_status": look.exit_status,
        "digest": known.get("digest"),
        "command": shlex.join(known["argv"]) if known else "",
        "log": files.log,
        "log_offset": known.get("log_offset", 0),
    }


def manage(
    supervisor: Supervisor,
    files: Files,
    wanted: Optional[Spec],
    labels: Mapping[str, Any],
    state: str,
    allow_restart: bool = False,
    check: bool = False,
) -> dict[str, Any]:
    """Bring one process to the wanted state and return what the module answers.

    In check mode nothing is touched, and a restart that would be refused is refused as well.
    """
    untouched = check or (state != "started" and not os.path.isdir(files.directory))
    with contextlib.nullcontext() if untouched else process.locked(files.cluster_dir):
        record = process.read_json(files.record)
        check_owner(files, record, labels["cluster"])
        look = supervisor.look(files, record)
        old = process.spec(record) if record is not None else None
        decision = process.decide(look, old, wanted, state, allow_restart)
        if decision.refused:
            raise refusal(files, decision, record or {"argv": []})
        warnings: list[str] = []
        if decision.action != "none" and not check:
            warnings = act(supervisor, files, record, decision.action, wanted, labels)
            record = process.read_json(files.record)
            look = supervisor.look(files, record)
        elif state == "stopped" and record is not None and not check:
            # What had ended by itself is not wanted any more either.
            record = {**record, "stopped": True}
            process.save(files, record)
        result = report(files, look, record, decision)
    if check and wanted is not None and decision.action in ("start", "restart"):
        result.update(digest=process.digest(wanted), command=shlex.join(wanted.argv))
    return {**result, "warnings": warnings}
