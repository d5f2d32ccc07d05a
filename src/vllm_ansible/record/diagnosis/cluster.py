"""Judge a cluster at any time: who does not answer, what does not run, and what it said last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .evidence import Evidence
from .page import explain

_UNREACHABLE = "the machine is down, its network is cut, or its key or user is not accepted"
_REACH = "see the machine's console or its provider, and make `ansible -m ping` succeed for {}"


def judge(
    logs: Mapping[str, Mapping[str, Any]],
    evidence: Evidence,
    lost: Sequence[str],
    died: Mapping[str, Mapping[str, Any]],
    stalled: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the answer as `page` shows it, with `state`: what is wrong, in sentences.

    logs: by host what engine_logs_info returned. lost: hosts that do not answer. died: by engine
    what does not run though nobody stopped it. stalled: what the watchdog finds, each a
    measurement that a gate takes.
    """
    missed = [one for one in stalled if not one["ok"]]
    # Where a host is lost, the others' logs say how that was; else those of what died.
    concerned = None if lost or missed or not died else set(died)
    answer = explain(texts(logs, concerned), evidence)
    answer["state"] = [
        *(f"no answer from {host}" for host in lost),
        *(f"{engine} does not run: {one['found']}" for engine, one in died.items()),
        *(f"{one['where']}: {one['found']}" for one in missed),
    ]
    if not answer["found"]:
        answer.update(_without_a_line(lost, died, missed))
    return answer


def texts(logs: Mapping[str, Mapping[str, Any]], engines: set[str] | None) -> dict[str, str]:
    """Return the tails by `host process`, of some engines or of all."""
    return {
        f"{host} {name}": str(text)
        for host, one in logs.items()
        for name, text in one.get("tails", {}).items()
        if engines is None or any(name in one["of_engine"].get(engine, ()) for engine in engines)
    }


def result(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the task: failed where something is wrong, else evidence."""
    if not answer["state"]:
        noted = f"; a line says: {answer['found']} ({answer['where']})" if answer["found"] else ""
        summary = f"every process runs that no command stopped; {answer['logs']} logs{noted}"
        evidence = {"gate": "diagnose", "summary": summary, "values": {"answer": dict(answer)}}
        return {"changed": False, "evidence": evidence}
    told = {
        "msg": "; ".join(answer["state"]),
        "expected": "every host answers, and everything runs that no command stopped",
        **{name: answer[name] for name in ("found", "where", "cause", "otherwise", "fix")},
        "excluded": "; ".join(answer["excluded"]),
        "seen": ", ".join(answer["threads"]),
        "signature": answer["signature"],
    }
    return {"changed": False, "failed": True, **{key: one for key, one in told.items() if one}}


def _without_a_line(
    lost: Sequence[str],
    died: Mapping[str, Mapping[str, Any]],
    missed: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return what is said where no log says what failed."""
    if lost:
        names = ", ".join(lost)
        found, where, fix = f"no answer from {names}", names, _REACH.format(names)
        return {"found": found, "where": where, "cause": _UNREACHABLE, "fix": fix}
    for one in (*died.values(), *missed):
        return {"found": one["found"], "where": one["where"], "fix": one.get("fix", "")}
    return {}
