"""What the day-2 verbs do with recorded processes: order of stopping, and a line of status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.node.process import ending
from vllm_ansible.planner.routers import has_router, router_of, url_of
from vllm_ansible.planner.servers import is_server, servers

Processes = Mapping[str, Mapping[str, Any]]


def _is_server(name: str, record: Mapping[str, Any]) -> bool:
    return is_server(str(record["engine"]), name)


def _goes_first(name: str, record: Mapping[str, Any]) -> bool:
    """Tell whether a process needs others: a server, or what stands before them, of no engine."""
    return not record["engine"] or _is_server(name, record)


def stop_steps(processes: Processes, servers: bool, forget: bool) -> list[dict[str, Any]]:
    """Return the steps that stop a host's servers and what stands before them, or the rest."""
    return [
        {
            "name": name,
            "engine": record["engine"],
            "state": "absent" if forget else "stopped",
        }
        for name, record in sorted(processes.items())
        if _goes_first(name, record) is servers
    ]


def status_rows(
    processes: Processes, engines: Iterable[Mapping[str, Any]], address: str, now: float
) -> list[str]:
    """Return one line for each process a host records, and one where it serves."""
    rows = []
    engines = list(engines)
    endpoints = {
        one.name: f"http://{address}:{one.port}/v1" for engine in engines for one in servers(engine)
    }
    endpoints |= {
        router_of(str(engine["name"])): f"{url_of(engine, address)}/v1"
        for engine in engines
        if has_router(engine)
    }
    for name, record in sorted(processes.items()):
        if record["running"]:
            state = f"running for {_age(now - record['started_at'])}, process {record['pid']}"
        elif record["exit_status"] is None:
            state = f"not running: {record['why']}" if record["why"] else "not running"
        else:
            state = ending(record["exit_status"])
        where = endpoints.get(name, "")
        shown = f", {where}" if where and record["running"] else ""
        rows.append(f"{name}: {state}{shown}")
    return rows


def _age(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} m"
    return f"{minutes} m {int(seconds) % 60} s" if minutes else f"{int(seconds)} s"
