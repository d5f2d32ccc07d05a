"""How an engine ran before its upgrade: what is kept of it, and how it gets that back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.decision import (
    NONE,
    RESTART,
    STARTS,
    STOPS,
    Decision,
    EngineDecision,
    Step,
)
from vllm_ansible.plan.process_spec import HEAD, SERVE, WORKER, ProcessSpec
from vllm_ansible.plan.servers import is_server

VERSION = 1
# Of a host's record of a process, what it is started with.
KEPT = ("name", "argv", "environment", "depends", "limits", "user", "cleanup", "digest")


def kept(
    engine: str, plan: Mapping[str, Any], read: Mapping[str, Mapping[str, Any]], benchmark: str
) -> dict[str, Any]:
    """Return what is kept on the head until an engine's upgrade has ended.

    plan: the one that runs. read: by host, what reading each record of the engine's processes has
    registered. benchmark: the file of its figures, empty where it was never measured.
    """
    processes = {
        host: [
            {key: record[key] for key in KEPT if record.get(key) is not None}
            for record in map(_content, found.get("results", ()))
            if record
        ]
        for host, found in read.items()
    }
    return {
        "version": VERSION,
        "engine": engine,
        "plan": dict(plan),
        "processes": {host: records for host, records in processes.items() if records},
        "benchmark": benchmark,
    }


def _content(read: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(base64.b64decode(read["content"]))
    return content


def begun(text: str) -> dict[str, Any]:
    """Return what an upgrade that did not end has kept; nothing where none did."""
    found: dict[str, Any] = json.loads(text) if text else {}
    return found if found.get("version") == VERSION else {}


def restored(
    state: Mapping[str, Any], looks: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return the decision that gives an engine back what it ran as, as M(engine_decision) does.

    looks: the processes recorded on each host now. What runs as it did before is left alone.
    """
    engine = str(state["engine"])
    (planned,) = (one for one in state["plan"]["engines"] if one["name"] == engine)
    specs = [
        _spec(record, engine, host, str(planned["hosts"][0]))
        for host, records in state["processes"].items()
        for record in records
    ]
    own = {
        (host, name): record
        for host, records in looks.items()
        for name, record in records.items()
        if record.get("engine") == engine
    }
    wanted = {(spec.host, spec.name): spec for spec in specs}
    runs = all(
        own.get(place, {}).get("running") and own[place]["digest"] == spec.digest
        for place, spec in wanted.items()
    )
    steps: list[Step] = []
    if not runs or set(own) - set(wanted):
        for (host, name), record in own.items():
            forget = (host, name) not in wanted
            if forget or record.get("running"):
                part = wanted[host, name].part if not forget else _part(engine, name, WORKER)
                steps.append(Step(STOPS[part], host, name, engine, forget=forget))
        steps += [Step(STARTS[one.part], one.host, one.name, engine, one) for one in specs]
    why = (f"the former specification of {engine} is started again",)
    engines = [
        EngineDecision(name, RESTART, why)
        if name == engine and steps
        else EngineDecision(name, NONE)
        for name in (str(one["name"]) for one in state["plan"]["engines"])
    ]
    decision = Decision(tuple(engines), tuple(steps))
    return {
        **decision.to_dict(list(looks)),
        "differs": bool(steps),
        "starts": bool(steps),
        "waiting": [],
    }


def _spec(record: Mapping[str, Any], engine: str, host: str, first: str) -> ProcessSpec:
    name = str(record["name"])
    return ProcessSpec(
        host=host,
        name=name,
        engine=engine,
        part=_part(engine, name, HEAD if host == first else WORKER),
        argv=tuple(record["argv"]),
        environment=record.get("environment") or {},
        depends=record.get("depends") or {},
        limits=record.get("limits") or {},
        user=record.get("user"),
        cleanup=tuple(record.get("cleanup") or ()),
    )


def _part(engine: str, name: str, otherwise: str) -> str:
    return SERVE if is_server(engine, name) else otherwise


def failure(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the first failure of a turn, of what failed on each host."""
    told = [one for result in results for one in _items(result) if one.get("msg")]
    # A host that was only taken along says less than the one that failed.
    found = next((one for one in told if one.get("expected")), told[0] if told else {})
    return {
        key: str(found.get(key) or "")
        for key in ("msg", "expected", "found", "where", "fix", "cause")
    }


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the items of a loop that failed, as its own message names none; else the whole."""
    items = [one for one in result.get("results") or () if one.get("failed")]
    return items or [result]


def failed(told: Mapping[str, str], engine: str) -> list[dict[str, Any]]:
    """Return the measurement that an upgrade failed, of an engine that serves as before."""
    return [
        {
            "what": "its upgrade. It has its former specification back and serves. What failed: "
            + _said(told),
            "ok": False,
            "expected": told["expected"],
            "found": f"{told['found']} ({told['where']})" if told["where"] else told["found"],
            "where": engine,
            "fix": told["fix"] or "correct the inventory, then run this again",
        }
    ]


def lost(
    told: Mapping[str, str], second: Mapping[str, str], engine: str, place: str
) -> list[dict[str, Any]]:
    """Return the measurement of an engine that did not get its former specification back."""
    return [
        {
            "what": "its upgrade, and its former specification did not come back either. What "
            f"failed first: {_said(told)}. Then: {_said(second)}",
            "ok": False,
            "expected": second["expected"] or "a completion of the former engine",
            "found": second["found"],
            "where": engine,
            "fix": f"what it ran as is kept in {place}: correct what failed, then run this again",
        }
    ]


def _said(told: Mapping[str, str]) -> str:
    return f"{told['msg']}; cause: {told['cause']}" if told["cause"] else told["msg"]


def rate_measurements(
    engine: str, before: str, after: str, worst: float, host: str
) -> list[dict[str, Any]]:
    """Return whether an engine makes as many tokens a second as it has to.

    before, after: the files of its figures, measured with the same load; worst: the least part of
    the former rate that is enough. A rate during which vLLM compiled is not the engine's, and one
    that was measured from the host of the group `load` has the network in it.
    """
    figures = [json.loads(text)["figures"] for text in (before, after)]
    compiled = any(one.get("compiled") for one in figures)
    if compiled or figures[0].get("generator") != figures[1].get("generator"):
        why = "vLLM compiled meanwhile" if compiled else "its former load came from another host"
        return [
            {
                "what": f"output tokens/s of {engine}",
                "ok": True,
                "expected": f"at least {worst:g} of its former rate",
                "found": f"{why}, not judged",
                "where": host,
                "fix": "",
            }
        ]
    former, now = (_rate(text) for text in (before, after))
    ratio = now / former if former else 0.0
    return [
        {
            "what": f"output tokens/s of {engine}",
            "ok": ratio >= worst,
            "expected": f"at least {former * worst:.1f} tokens/s ({worst:g} of {former:.1f})",
            "found": f"{now:.1f} tokens/s ({ratio:.2f} of it)",
            "where": host,
            "fix": "undo the change, or set upgrade_worst_rate to what is enough (0: do not "
            "measure)",
        }
    ]


def load(benchmark: str) -> dict[str, int]:
    """Return the load that a file of figures was measured with; nothing where there is none."""
    settings = json.loads(benchmark)["fingerprint"]["settings"] if benchmark else {}
    return {str(name): int(value) for name, value in settings.items()}


def _rate(text: str) -> float:
    return float(json.loads(text)["figures"]["output_tokens_per_second"])


def drained(
    looked: Mapping[str, Any], engine: str, seconds: float, host: str
) -> list[dict[str, Any]]:
    """Return whether an engine has ended its requests, of what M(door_servers) has found."""
    count = int(looked.get("requests") or 0)
    return [
        {
            "what": f"{engine} has ended its requests",
            "ok": "requests" in looked and count == 0,
            "expected": f"none within {seconds:g} s of draining (upgrade_drain_seconds)",
            "found": f"{count} requests" if "requests" in looked else str(looked.get("msg")),
            "where": host,
            "fix": "raise upgrade_drain_seconds; clients that ask the engine itself, not the door, "
            "have to stop",
        }
    ]


def back(looked: Mapping[str, Any], engine: str, host: str) -> list[dict[str, Any]]:
    """Return whether the door gives an engine requests again."""
    found: Sequence[Mapping[str, Any]] = looked.get("servers") or ()
    up = bool(found) and all(one["up"] for one in found)
    return [
        {
            "what": f"{engine} gets requests at the door again",
            "ok": up,
            "expected": "its servers up",
            "found": ", ".join(f"{one['name']} {one['words']}" for one in found)
            or str(looked.get("msg") or "no server of this name"),
            "where": host,
            "fix": "read the log of the door and the engine's; its /health must answer 200",
        }
    ]
