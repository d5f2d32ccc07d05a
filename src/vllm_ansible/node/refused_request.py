"""Why requests of a measurement came back without an answer."""

from __future__ import annotations

import os
import re

from . import process

# As HAProxy logs it; what the watch has judged comes as `info: "via agent : down (no token ...)"`.
EJECTED = re.compile(
    r'Server ranks/(\S+) is DOWN, reason: ([^,\n]+)(?:[^\n]*?, info: "([^"\n]*)")?'
)
JUDGED = re.compile(r"via agent : down \((.*)\)")
TAIL_BYTES = 1 << 16


def explain(error: str, asked: str, cluster_dir: str) -> tuple[str, str]:
    """Return the likely cause of a failed request, and what mends it.

    asked is the process that was to answer: a server, or the router before several.
    """
    log = process.Files(cluster_dir, asked).log
    if error in ("Unauthorized", "Forbidden"):
        key = os.path.join(cluster_dir, "secrets/api_key")
        return (
            f"the server was started with another key than the one in {key}",
            "run the stages cluster and serve with allow_disruption=true: the server starts anew",
        )
    if "Connect" in error or "Disconnected" in error:
        return f"{asked} ended or stopped listening", f"read {log}, run the stage serve"
    if error == "Service Unavailable" and (why := _ejected(log)):
        return (
            f"the router had no rank that computes: {why}",
            f"read {log}; where ranks are slow and not dead, raise router_answer_seconds above "
            "their longest step",
        )
    return "the server refused or broke off", f"read {log}"


def _ejected(log: str) -> str:
    """Return why each rank was ejected last, empty where none was or nobody may read that."""
    try:
        with open(log, "rb") as lines:
            lines.seek(max(0, os.path.getsize(log) - TAIL_BYTES))
            text = lines.read().decode(errors="replace")
    except OSError:
        return ""
    found = {one[1]: JUDGED.sub(r"\1", one[3] or one[2]) for one in EJECTED.finditer(text)}
    return ", ".join(f"{rank}: {why}" for rank, why in sorted(found.items()))
