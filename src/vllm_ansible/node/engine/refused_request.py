"""Why requests of a measurement came back without an answer."""

from __future__ import annotations

import os
import re

from ..process import process

# As HAProxy logs it; what the watch has judged comes as `info: "via agent : down (no token ...)"`.
TURN = re.compile(
    r'Server ranks/(\S+) is (UP|DOWN), reason: ([^,\n]+)(?:[^\n]*?, info: "([^"\n]*)")?'
)
JUDGED = re.compile(r"via agent : down \((.*)\)")
# What HAProxy itself answers: no rank is up, one broke off, one said nothing for too long.
ROUTER_ANSWERS = ("Service Unavailable", "Bad Gateway", "Gateway Time-out")
TAIL_BYTES = 1 << 16


# vLLM's client strips every piece that it reads of a stream (0.32, endpoint_request_func.py).
# Where a packet ends between `data:` and the space after it, the request ends so, though it was
# answered. Events that wait for the network do so. JSON that is spoilt fails at another place.
UNREAD = "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"

# What a client meets that writes on a connection which the server has closed: vLLM does so after
# VLLM_HTTP_TIMEOUT_KEEP_ALIVE, 5 s, and vLLM's client keeps one for 60 s.
CLOSED = ("Server disconnected", "Can not write request body")


def explain(error: str, asked: str, cluster_dir: str) -> tuple[str, str]:
    """Return the likely cause of a failed request, and what mends it.

    asked is the process that was to answer: a server, or the router before several.
    """
    files = process.Files(cluster_dir, asked)
    if error in ("Unauthorized", "Forbidden"):
        key = os.path.join(cluster_dir, "secrets/api_key")
        return (
            f"the server was started with another key than the one in {key}",
            "run the stages cluster and serve with allow_disruption=true: the server restarts",
        )
    if error.endswith(UNREAD):
        return (
            "not the engine: vLLM's client does not read an event that two packets share",
            "ask more requests, of which one in twenty may end so, or measure over a faster link",
        )
    if any(words in error for words in CLOSED):
        return (
            f"{asked} ended, or a client without processor time did not see that its connection "
            "was closed: an engine closes one that is unused for 5 s",
            f"read {files.log}; if {asked} runs on, run the load from another host",
        )
    if "Connect" in error:
        return f"{asked} ended or stopped listening", f"read {files.log}, run the stage serve"
    if error in ROUTER_ANSWERS and (ejected := _ejected(files)):
        return (
            f"the router answered in place of a rank; it has ejected {ejected}",
            f"read {files.log}; where a rank is slow and not dead, raise router_answer_seconds "
            "above its longest step",
        )
    return "the server refused or broke off", f"read {files.log}"


def _ejected(files: process.Files) -> str:
    """Return why each rank was ejected last by the router that runs; empty where none was."""
    started = (process.read_json(files.record) or {}).get("log_offset", 0)
    try:
        with open(files.log, "rb") as lines:
            lines.seek(max(started, os.path.getsize(files.log) - TAIL_BYTES))
            text = lines.read().decode(errors="replace")
    except OSError:
        return ""
    found: dict[str, str] = {}
    back = set()
    for rank, turn, reason, info in TURN.findall(text):
        if turn == "UP":
            back.add(rank)
        else:
            found[rank] = JUDGED.sub(r"\1", info or reason)
            back.discard(rank)
    return ", ".join(
        f"{rank} ({why}{'; up again since' if rank in back else ''})"
        for rank, why in sorted(found.items())
    )
