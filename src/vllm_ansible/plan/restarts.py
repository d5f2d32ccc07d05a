"""Which engines a cluster's head may start again by itself, and what `status` says of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.node.process.process import STOPPED
from vllm_ansible.node.watchdog.ladder import Point
from vllm_ansible.plan import ladder
from vllm_ansible.plan.dynamo import has_dynamo
from vllm_ansible.plan.servers import servers
from vllm_ansible.plan.views import members

Engine = Mapping[str, Any]
SLURM = "slurm"
RESTARTS = "watchdog-restarts"


def wanted(
    engines: Sequence[Engine],
    hosts: Iterable[Mapping[str, Any]],
    host: str,
    provider: str,
    lines: Mapping[str, Point] | None = None,
) -> list[dict[str, Any]]:
    """Return what the process on a cluster's head needs to know of each engine.

    hosts: site_host of every host of this run. host: the head. provider: who rents the machines.
    lines: those of the known failures, None where restarts are to change nothing.
    """
    known = {str(one["name"]): one for one in hosts}
    found = [_engine(engine, known, host, provider) for engine in engines]
    return [
        {
            **one,
            "rungs": ladder.rungs(engine, lines) if lines and not one["why"] else [],
            "hardware": ladder.hardware(engine, known),
        }
        for one, engine in zip(found, engines, strict=True)
    ]


def _engine(
    engine: Engine, hosts: Mapping[str, Mapping[str, Any]], host: str, provider: str
) -> dict[str, Any]:
    why = _why_not(engine, hosts, host, provider)
    ray = engine.get("executor") == "ray"
    spread = ray and list(engine["hosts"]) != [host]
    own = [] if why else list(servers(engine))
    return {
        "name": str(engine["name"]),
        "why": why,
        # A Ray that is whole serves the next server of its cluster as well.
        "processes": [
            *([f"{engine['name']}-ray"] if ray and not spread else []),
            *(one.name for one in own),
        ],
        "servers": [
            {
                "host": one.host,
                "address": str(hosts[one.host]["address"]),
                "port": one.port,
                "served_name": str(engine["served_name"]),
                "local": True,
            }
            for one in own
        ],
        "nodes": members(engine, hosts.values()) if spread and not why else {},
        "dashboard_port": int(engine["ports"].get("dashboard", 0)),
    }


def _why_not(
    engine: Engine, hosts: Mapping[str, Mapping[str, Any]], host: str, provider: str
) -> str:
    """Return why the head of a cluster cannot start an engine, empty where it can."""
    others = [name for name in engine["hosts"] if name != host]
    if provider == SLURM:
        return "nodes of Slurm may end with their job while the cluster's lock is held"
    if has_dynamo(engine):
        return "it has Dynamo before it, whose parts would have to start in order, too"
    if engine["hosts"][0] != host:
        return f"it is served from {engine['hosts'][0]}, not from the cluster's head"
    if others and engine.get("executor") != "ray":
        return f"its ranks on {', '.join(others)} are processes that only those hosts can start"
    if missing := [name for name in engine["hosts"] if name not in hosts]:
        return f"the last run left out {', '.join(missing)}"
    return ""


def _engines(
    looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return what was kept of each engine that nobody has stopped."""
    if not processes.get(RESTARTS, {}).get("running"):
        return {}
    stopped = {one["engine"] for one in processes.values() if one.get("why") == STOPPED}
    kept = (looked.get("state") or {}).get("engines") or {}
    return {name: one for name, one in kept.items() if name not in stopped}


def rows(looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one line for each engine that was started again, or should be.

    looked: what watchdog_info has returned of it. processes: the recorded processes of the host.
    """
    found = []
    for name, kept in sorted(_engines(looked, processes).items()):
        if kept.get("held"):
            command = f" ({kept['command']})" if kept.get("command") else ""
            found.append(f"restarts: {name}: {kept['held']}{command}")
        if kept.get("restarts"):
            found.append(f"restarts: {name}: {_helped(kept)}; {_last(kept['restarts'][-1])}")
    return found


def _helped(kept: Mapping[str, Any]) -> str:
    counts = (kept.get("counts") or {}).items()
    said = ", ".join(f"{kind} {helped} of {tried}" for kind, (tried, helped) in sorted(counts))
    return f"helped: {said}" if said else "none has ended yet"


def _last(entry: Mapping[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry["at"]))
    seconds = entry.get("ended_at", entry["at"]) - entry["at"]
    came = f", {entry['outcome']} after {seconds:.0f} s" if entry.get("outcome") else ""
    return f"last at {at}, since {entry['found']}{came}; its logs are in {entry['logs']}"


def measurements(
    looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]], host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each engine that should be started again and is not."""
    return [
        {
            "what": f"engine {name} started again",
            "ok": False,
            "expected": "an engine that answers, or comes back by itself",
            "found": kept["held"],
            "where": host,
            "fix": f"on {host}: {kept['command']}"
            if kept.get("command")
            else "vllm-ansible diagnose names the cause; site.yml starts it again",
        }
        for name, kept in sorted(_engines(looked, processes).items())
        if kept.get("held")
    ]
