"""The answer to what failed, as a document and as a page that a person reads."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ...node.engine.log import last_phase
from ..redact import redact_text, visible
from . import lines
from .evidence import Evidence
from .explained import explained, host_of_finding, usual_cause
from .first import (
    Candidate,
    Finding,
    candidates_of,
    first_of,
    in_order,
    known_failures,
    last_known,
    last_words,
)
from .interleaved import log_of
from .long_log import count, numbered
from .relayed import all_as_written
from .verdict import shorten

_WIDTH = 100
# More would not fit on one screen.
_MOST_LINES, _MOST_OTHERS, _MOST_EXCLUDED, _MOST_UNREAD = 6, 3, 3, 3
_LINE_LENGTH = 160
_NO_TIME = "without a time"
# Names of processes that carry the number of a rank.
_RANKS = re.compile(r"\brank|_(?:TP|PP|DP|EP)\d|Worker")
# Of a log, the lines before a failure in which the phase that it was in is looked for.
_PHASE_LINES = 20_000
_HAND_ON = "read the lines around it ({}); --bundle FILE makes a redacted archive to hand on"
_ELSEWHERE = (
    "bring the logs of the other ranks, of Ray's workers (worker-*.err in "
    "/tmp/ray/session_latest/logs), of the container before its restart and of the kernel "
    "(`dmesg -T`)"
)


def explain(logs: Mapping[str, str], evidence: Evidence | None = None) -> dict[str, Any]:
    """Return the first cause, where it stands, and which other known failures the logs show."""
    known_of = evidence or Evidence()
    logs = all_as_written(logs)
    clocks = known_of.clocks_of(logs)
    candidates = candidates_of(logs, clocks)
    finding = first_of(candidates)
    silent = None if finding else last_known(logs)
    told = finding or silent or last_words(logs)
    signature = told.signature if told else None
    others = [one for one in known_failures(candidates) if one.signature != signature]
    answer = explained(told, logs, known_of.facts) if told else None
    # What was taken out of one log ends before, or with, that log.
    counted: dict[str, int] = {}
    for name, text in logs.items():
        counted[log_of(name)] = max(count(text), counted.get(log_of(name), 0))
    return {
        "logs": len(counted),
        "lines": sum(counted.values()),
        "silent": silent is not None,
        "found": _said(told) if told else "",
        "where": told.where if told else "",
        "follows": bool(told and lines.read(told.line).is_follow_up),
        "host": host_of_finding(told, known_of.facts) if told else "",
        "rank": (told.writer or "") if told else "",
        "stage": _phase(logs.get(told.rank, ""), told.number) if told else "",
        "time": _time(told.seconds) if told else "",
        "signature": signature.id if signature else "",
        # They may repeat the words of the line.
        "cause": _clean(answer.cause) if answer else "",
        "otherwise": answer.otherwise if answer else "",
        "excluded": list(answer.excluded) if answer else [],
        "fix": _clean(answer.fix) if answer else "",
        "threads": list(signature.refs) if signature else [],
        "evidence": _evidence(candidates, told, known_of),
        "clocks": {host: seconds for host, seconds in known_of.clocks.items() if seconds},
        "others": [_other(one) for one in others],
    }


def page(answer: Mapping[str, Any]) -> str:
    """Return the answer as a person reads it."""
    read = f"{answer['logs']} log(s), {answer['lines']} lines"
    wrong = [_row("wrong", one) for one in answer.get("state", [])]
    unread = _unread(answer.get("unread", {}))
    if not answer["found"]:
        return "\n".join([*wrong, f"No line of {read} says that something failed.", *unread])
    first = "The logs end, and no line says what failed" if answer["silent"] else "First failure"
    rows = [f"{first}, in {read}:"]
    if answer["cause"]:
        rows.append(_row("cause", answer["cause"]))
        rows += [_row("or", answer["otherwise"])] if answer["otherwise"] else []
        rows.append(_row("fix", answer["fix"]))
    elif answer.get("follows"):
        why = "not known: this line only follows from a failure that these logs do not show"
        rows += [_row("cause", why), _row("next", _ELSEWHERE)]
    else:
        rows.append(_row("cause", "not known: no signature knows this line"))
        rows.append(_row("next", _HAND_ON.format(answer["where"])))
    writer = "rank" if _RANKS.search(answer.get("rank", "")) else "process"
    said = (("host", "host"), (writer, "rank"), ("stage", "stage"))
    rows += [_row(name, answer[key]) for name, key in said if answer.get(key)]
    rows += [_row("time", answer["time"])] if answer.get("time", _NO_TIME) != _NO_TIME else []
    rows += [_row("found", answer["found"]), _row("where", answer["where"])]
    rows += [_row("seen in", ", ".join(answer["threads"]))] if answer["threads"] else []
    if answer["excluded"]:
        rows += ["Excluded:", *(_row("", one) for one in answer["excluded"][:_MOST_EXCLUDED])]
    if len(answer["evidence"]) > 1:
        rows.append("The lines, in the order of time:")
        rows += [
            _short(f"{one['time']} {one['host']}: {one['line']}") for one in answer["evidence"]
        ]
    if answer["others"]:
        rows.append("Also known, later or less likely:")
        rows += [
            _short(f"{one['where']}: {one['cause']}") for one in answer["others"][:_MOST_OTHERS]
        ]
    return "\n".join([*wrong, *rows, *unread])


def _unread(files: Mapping[str, str]) -> list[str]:
    """Return a line for each file that was not read, of many the first."""
    lines = [_short(visible(f"{name}: {why}")) for name, why in files.items()]
    if len(lines) > _MOST_UNREAD:
        lines[_MOST_UNREAD:] = [_short(f"and {len(lines) - _MOST_UNREAD} more")]
    return ["Not read:", *lines] if lines else []


def _phase(text: str, until: int) -> str:
    """Return what the engine was doing when it wrote a line, as far as its log says."""
    before = [line for number, line in numbered(text.splitlines()) if number <= until]
    found = last_phase("\n".join(before[-_PHASE_LINES:]))
    if found is None:
        return ""
    if found.name == "listening":
        return "serving"
    return f"{found.name}, {found.done} of {found.total}" if found.total else found.name


def _evidence(
    candidates: Sequence[Candidate], told: Finding | None, known: Evidence
) -> list[dict[str, str]]:
    """Return the first lines that say that something failed, with host and corrected time."""
    if told is None:
        return []
    lines = [told, *(one for one in in_order(candidates) if one.seconds >= told.seconds)]
    found: dict[tuple[str, str], dict[str, str]] = {}
    for one in lines:
        host, line = host_of_finding(one, known.facts), _said(one)[:_LINE_LENGTH]
        found.setdefault((host, line), {"host": host, "time": _time(one.seconds), "line": line})
    return list(found.values())[:_MOST_LINES]


def _said(finding: Finding) -> str:
    return _clean(shorten(finding.line))


def _clean(text: str) -> str:
    return visible(redact_text(text))


def _time(seconds: float) -> str:
    """Return a moment as vLLM writes it: no year, for most logs have none."""
    if math.isinf(seconds):
        return _NO_TIME
    return datetime.fromtimestamp(seconds, UTC).strftime("%m-%d %H:%M:%S")


def _other(finding: Finding) -> dict[str, str]:
    known = finding.signature
    return {
        "signature": known.id if known else "",
        "cause": usual_cause(known, finding.line) if known else "",
        "where": finding.where,
        "found": _said(finding),
    }


def _short(words: str) -> str:
    """Return a line of its own, cut where the page ends."""
    line = f"{'':10}{words}"
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 4]} ..."


def _row(name: str, words: str) -> str:
    # Commands and names stay whole, to be copied.
    return textwrap.fill(
        words,
        _WIDTH,
        initial_indent=f"  {name:<8}",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )
