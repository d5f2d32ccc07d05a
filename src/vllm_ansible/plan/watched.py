"""What the watchdog of a host is told of the plan, and what its findings mean for `status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.node.process.process import STOPPED
from vllm_ansible.plan.servers import is_server, servers

Engine = Mapping[str, Any]
WATCHDOG = "watchdog"
# It writes every two seconds; a machine that is busy may take longer.
SILENT_SECONDS = 60.0


def told(
    engines: Iterable[Engine], hosts: Iterable[Mapping[str, Any]], host: str
) -> list[dict[str, Any]]:
    """Return what the watchdog of a host is told of each engine that has a rank there.

    hosts: site_host of every host of this run; an address that is not known is not watched. Of an
    engine with several servers it watches the processes: the router asks its ranks.
    """
    addresses = {str(one["name"]): str(one["address"]) for one in hosts}
    return [
        _engine(engine, addresses, host) for engine in engines if host in (engine["hosts"] or ())
    ]


def _engine(engine: Engine, addresses: Mapping[str, str], host: str) -> dict[str, Any]:
    (first, *others) = servers(engine)
    port = int(engine["ports"]["api"])
    known = first.host in addresses and not others
    return {
        "name": str(engine["name"]),
        "ranks": [
            number for number, rank in enumerate(engine.get("ranks") or ()) if rank["host"] == host
        ],
        "server": {
            "host": first.host,
            "address": addresses[first.host],
            "port": first.port,
            "served_name": str(engine["served_name"]),
            "local": first.host == host,
        }
        if known
        else None,
        "peers": [
            {"host": str(name), "address": addresses[name], "port": port}
            for name in engine["hosts"]
            if name != host and name in addresses
        ],
    }


def _wanted(finding: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether a finding is of something that nobody has stopped."""
    engine = finding["engine"]
    stopped = {name for name, one in processes.items() if one.get("why") == STOPPED}
    if finding["process"] in stopped:
        return False
    return not any(is_server(engine, name) for name in stopped)


def current(
    looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the findings that still count.

    looked: what watchdog_info has returned. processes: the recorded processes of the host. A
    watchdog that does not run has no findings: status tells of it as of any process.
    """
    if not processes.get(WATCHDOG, {}).get("running"):
        return []
    findings = (looked.get("state") or {}).get("findings") or []
    return [dict(one) for one in findings if _wanted(one, processes)]


def rows(looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one line for each finding of a host."""
    return [f"watchdog: {_said(one)}" for one in current(looked, processes)]


def _said(finding: Mapping[str, Any]) -> str:
    return f"{finding['found']}, while {finding['stage']}, for {finding['for_seconds']:.0f} s"


def measurements(
    looked: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]], host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each finding, and one for a watchdog that has gone silent."""
    found = [
        {
            "what": f"engine {one['engine']} at work",
            "ok": False,
            "expected": "processes that run, hosts that answer, tokens for a question",
            "found": _said(one) + (f"; stacks in {one['stacks']}" if one.get("stacks") else ""),
            "where": host,
            "fix": one["fix"],
        }
        for one in current(looked, processes)
    ]
    watching = processes.get(WATCHDOG, {})
    silent = looked.get("error") or (
        f"its last look was {looked['age']:.0f} s ago"
        if looked.get("age", 0.0) > SILENT_SECONDS
        else ""
    )
    if watching.get("running") and silent:
        found.append(
            {
                "what": "a watchdog that looks",
                "ok": False,
                "expected": f"a look within the last {SILENT_SECONDS:.0f} s",
                "found": silent,
                "where": host,
                "fix": f"read {watching.get('log', 'its log')}; kill -CONT {watching.get('pid')} "
                "where it is stopped",
            }
        )
    return found
