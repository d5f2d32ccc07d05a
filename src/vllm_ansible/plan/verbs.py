"""What the day-2 verbs do with recorded processes: order of stopping, and a line of status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.node.process.process import STOPPED, ending, told
from vllm_ansible.plan.dynamo import is_store, rank_address
from vllm_ansible.plan.routers import has_router, router_of, url_of
from vllm_ansible.plan.servers import is_server, servers

Processes = Mapping[str, Mapping[str, Any]]


def _is_server(name: str, record: Mapping[str, Any]) -> bool:
    return is_server(str(record["engine"]), name)


def _goes_first(name: str, record: Mapping[str, Any]) -> bool:
    """Tell whether a process needs others: a server, or what stands before them, of no engine.

    Sidecars of all hosts are registered with the stores of one: these end after a barrier.
    """
    if not record["engine"]:
        return not is_store(name)
    return _is_server(name, record)


def stop_steps(processes: Processes, servers: bool, forget: bool) -> list[dict[str, Any]]:
    """Return the steps that stop a host's servers and what stands before them, or the rest."""
    return [
        {
            "name": name,
            "engine": record["engine"],
            "state": "absent" if forget else "stopped",
        }
        # What stands before the engines, or watches them, ends before they do.
        for name, record in sorted(
            processes.items(), key=lambda one: (bool(one[1]["engine"]), one[0])
        )
        if _goes_first(name, record) is servers
    ]


def closing_steps(processes: Processes, engines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the steps that stop the servers of these engines on a host."""
    names = set(engines)
    return [
        {"name": name, "engine": record["engine"], "state": "stopped"}
        for name, record in sorted(processes.items())
        if record["engine"] in names and _is_server(name, record)
    ]


def status_rows(
    processes: Processes, engines: Iterable[Mapping[str, Any]], address: str, now: float
) -> list[str]:
    """Return one line for each process a host records, and one where it serves."""
    rows = []
    engines = list(engines)
    endpoints = {
        one.name: f"http://{rank_address(engine, address)}:{one.port}/v1"
        for engine in engines
        for one in servers(engine)
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
        elif record["why"] == STOPPED:
            state = "stopped"
        else:
            # A vLLM server that lost its engine ends with status 0.
            by_itself = "" if record["exit_status"] else ", and no command stopped it"
            state = f"{ending(record['exit_status'])}{by_itself}"
        where = endpoints.get(name, "")
        shown = f", {where}" if where and record["running"] else ""
        rows.append(f"{name}: {state}{shown}")
    return rows


def died_engines(
    looks: Mapping[str, Processes], engines: Iterable[Mapping[str, Any]], lost: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return by engine what of it does not run though nobody stopped it, as `diagnose` takes it.

    looks: the recorded processes of each host. lost: hosts that do not answer. What is no
    engine's, such as a load-test page, comes under its own name.
    """
    dead: dict[str, list[tuple[float, str, str]]] = {}
    for host, processes in looks.items():
        for name, record in processes.items():
            if record["running"] or record["why"] == STOPPED:
                continue
            when = record.get("ended_at") or float("inf")
            said = f"on {host}: {told(name, str(record['why']))}"
            dead.setdefault(str(record["engine"]) or name, []).append((when, said, host))
    spans = {str(engine["name"]): engine.get("hosts") or () for engine in engines}
    lost = set(lost)
    found = {}
    for engine, processes_of in dead.items():
        ordered = sorted(processes_of)
        away = sorted(lost & set(spans.get(engine, ())))
        words = [f"no answer from {', '.join(away)}"] if away else []
        words += [said for _, said, _ in ordered]
        found[engine] = {
            "expected": "it runs, for no command stopped it",
            "found": "; ".join(words),
            "where": away[0] if away else ordered[0][2],
            "fix": "site.yml, or playbooks/start.yml, starts it again; playbooks/stop.yml says "
            "that it is not wanted",
        }
    return found


def _age(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} m"
    return f"{minutes} m {int(seconds) % 60} s" if minutes else f"{int(seconds)} s"
