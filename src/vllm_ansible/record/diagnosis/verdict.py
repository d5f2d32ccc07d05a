"""Join what a wait saw and what the logs say into one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..redact import redact_text
from .evidence import Evidence
from .explained import explained
from .first import Finding, first_failure, last_known, last_words
from .relayed import all_as_written


def shorten(line: str, most: int = 400) -> str:
    """Return a line as a person can read it; the whole of it lies in the run's logs.

    Secrets are hidden first: half of one is not known again.
    """
    line = redact_text(line)
    return line if len(line) <= most else f"{line[: most - 4]} ..."


def texts(logs: Any) -> dict[str, str]:
    """Return the tails of logs by the rank that wrote them, from any of the forms they come in."""
    if isinstance(logs, Mapping):
        found: dict[str, str] = {}
        for host, processes in logs.items():
            if isinstance(processes, Mapping):
                for process, text in processes.items():
                    found[f"{host} {process}"] = _text(text)
            else:
                found[str(host)] = _text(processes)
        return found
    if isinstance(logs, list) and all(isinstance(item, Mapping) for item in logs):
        return {
            f"{item.get('host', '')} {item.get('process', '')}".strip(): _text(
                item.get("text", item.get("tail", ""))
            )
            for item in logs
        }
    raise TypeError(
        "expected `logs` as {host: {process: text}} or as a list of {host, process, text}, "
        f"found {type(logs).__name__}"
    )


def diagnose(
    title: str,
    logs: Mapping[str, str],
    verdict: Mapping[str, Any],
    stage: str | None = None,
    evidence: Evidence | None = None,
) -> dict[str, Any]:
    """Return the result of a task that explains why something did not happen.

    evidence: what is known of the hosts, against which causes are held, and of their clocks.
    """
    if verdict.get("ready"):
        return {"changed": False, "failed": False, "msg": "nothing to diagnose: it is ready"}
    known_of = evidence or Evidence()
    logs = all_as_written(logs)
    # A server that answers wrongly is stopped before logs are collected: they end with that stop.
    wrong = bool(verdict.get("wrong"))
    finding = None if wrong else first_failure(logs, known_of.clocks_of(logs))
    silent = None if finding or wrong else last_known(logs)
    finding = finding or (None if silent or wrong else last_words(logs))
    named = finding or silent
    known = named.signature if named else None
    answer = explained(named, logs, known_of.facts) if named else None
    result = {
        "changed": False,
        "failed": True,
        "msg": _headline(title, verdict) if finding else title,
        "expected": verdict.get("expected"),
        "found": shorten(finding.line) if finding else verdict.get("found") or _quiet(silent, logs),
        "where": named.where if named else verdict.get("where"),
        "rank": finding.rank if finding else verdict.get("rank"),
        "cause": answer.cause if answer else verdict.get("cause"),
        "otherwise": answer.otherwise or None if answer else None,
        "excluded": "; ".join(answer.excluded) or None if answer else None,
        "fix": answer.fix if answer else verdict.get("fix"),
        "seen": ", ".join(answer.seen) or None if answer else None,
        "command": verdict.get("command"),
        "signature": known.id if known else None,
        "stage": stage,
    }
    return {key: value for key, value in result.items() if value is not None}


def _headline(title: str, verdict: Mapping[str, Any]) -> str:
    """Return the title with what the wait saw, which a failing line would otherwise displace."""
    # The wait quotes the log's last line; the first failing one is known now.
    seen = str(verdict.get("found") or "").split("; last line:")[0]
    return f"{title}: {seen}" if seen else title


def _quiet(silent: Finding | None, logs: Mapping[str, str]) -> str:
    """Return what the logs end with, where no line of them says what failed."""
    return f"nothing after: {shorten(silent.line)}" if silent else _nothing(logs)


def _nothing(logs: Mapping[str, str]) -> str:
    empty = [rank for rank, text in logs.items() if not text.strip()]
    if not logs:
        return "no log at all"
    if empty:
        return f"nothing in the log of {', '.join(empty)}"
    return f"no line that reports a failure in the logs of {', '.join(logs)}"


def _text(value: Any) -> str:
    return "\n".join(str(line) for line in value) if isinstance(value, list) else str(value or "")
